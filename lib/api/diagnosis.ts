import type { NodeError } from './errors.js';

/** The answer of `LockService.ping()`. */
export interface LockPing {
  /** Name of the registration. */
  registration: string;
  /** Whether locks can be had: the servers answer, a quorum of a Redlock votes, and the application does not close. */
  available: boolean;
  /** Whether the application has begun to close: from the moment on that `lock.closing` aborts. */
  closing: boolean;
  /** How many of the servers answer, and vote on a Redlock; one Redis, a Cluster, and the memory of the process count as one. */
  nodes: { voting: number; of: number };
  /** What is wrong, for operators: it names servers, but holds no credentials. On a Redlock also of nodes that are not needed. */
  problems: NodeError[];
}

/** A finding for operators about the servers that keep the locks. */
export interface Finding {
  /**
   * `error`: locks are unsafe, or cannot be had. `warning`: they work, but not always, or not as well as they could.
   */
  severity: 'error' | 'warning';
  /** Its subject, for programs: each backend has codes of its own. */
  code: string;
  /** `name` of the node it is about; `undefined` when it is about several or none. */
  node?: string;
  /** What is wrong, what that leads to, and what to do. It holds no credentials. */
  message: string;
}

/** The state of one server: each backend adds fields of its own. */
export interface NodeReport {
  /** Name of the server, such as `host:port`. */
  name: string;
  /** Whether it answered. */
  reachable: boolean;
  /** Why it was not reached. */
  problem?: string;
  /** The state in a few words, for people. */
  summary: string;
}

/**
 * The report of `LockService.diagnose()`: plain data, which can be sent as JSON.
 * @typeParam Node the backend's report on a server: `NodeDiagnosis` for Redis
 */
export interface LockDiagnosis<Node extends NodeReport = NodeReport> {
  /** Name of the registration. */
  registration: string;
  /** The kind of backend: `memory`, `redis` or `redlock`. */
  backend: string;
  /** The backend in words: `on one Redis`. */
  where: string;
  /** When it was made, by the clock of this process, in ISO 8601. */
  checkedAt: string;
  /** Each server once; none for locks in memory. */
  nodes: Node[];
  /** The errors come first. */
  findings: Finding[];
}

/** A diagnosis as one block of text, for a log: a line for each server, then one for each finding. */
export function formatDiagnosis({ registration, where, nodes, findings }: LockDiagnosis): string {
  return [
    `Locks of "${registration}", ${where}${nodes.length > 0 ? ':' : '.'}`,
    ...nodes.map(({ name, summary }) => `  ${name}: ${summary}`),
    ...findings.map(({ severity, message }) => `  ${severity}: ${message}`),
  ].join('\n');
}
