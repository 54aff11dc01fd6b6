import type { NodeError } from './errors.js';
import { printable, quoted } from './printable.js';

/** The answer of `LockService.ping()`. */
export interface LockPing {
  /** Name of the registration. */
  registration: string;
  /** Whether locks can be taken: the servers answer, a quorum of a Redlock votes, and the application is not closing. */
  available: boolean;
  /** Whether the application has begun to close, which is when `lock.closing` aborts. */
  closing: boolean;
  /**
   * The number of servers that answer (on a Redlock: that vote), and the number of all servers. One Redis, a Cluster, a database or
   * the memory of the process counts as one.
   */
  nodes: { voting: number; of: number };
  /** The problems, for operators. They name servers, never credentials. On a Redlock they include nodes that are not needed. */
  problems: NodeError[];
}

/** A finding for operators about the servers that keep the locks. */
export interface Finding {
  /** `error`: locks are unsafe, or cannot be taken. `warning`: they work, but not always, or not as well as they could. */
  severity: 'error' | 'warning';
  /** A stable code for the finding, for programs to match on. Each backend has its own codes. */
  code: string;
  /** The `name` of the node with the problem; `undefined` if it concerns several nodes or none. */
  node?: string;
  /** The problem, its effect, and what to do. It contains no credentials. */
  message: string;
}

/** The state of one server. Each backend adds its own fields. */
export interface NodeReport {
  /** Name of the server, such as `host:port`. */
  name: string;
  /** Whether it answered. */
  reachable: boolean;
  /** The reason why it could not be reached. */
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
  /** The kind of backend: `memory`, `redis`, `redlock`, `postgres` or `mysql`. */
  backend: string;
  /** The backend in words: `on one Redis`. */
  where: string;
  /** The time of the report, by the clock of this process, in ISO 8601. */
  checkedAt: string;
  /** One report for each server; none for locks in memory. */
  nodes: Node[];
  /** The findings, errors first. */
  findings: Finding[];
}

/** The maximum length of the text about one server or one finding. Only a server that sends long replies reaches it. */
const MAX_TEXT_LENGTH = 2_000;

/** Formats a diagnosis as one block of text for a log: a line for each server, then a line for each finding. */
export function formatDiagnosis({ registration, where, nodes, findings }: LockDiagnosis): string {
  return [
    `Locks of ${quoted(registration)}, ${where}${nodes.length > 0 ? ':' : '.'}`,
    ...nodes.map(({ name, summary }) => `  ${printable(name)}: ${printable(summary, MAX_TEXT_LENGTH)}`),
    ...findings.map(({ severity, message }) => `  ${severity}: ${printable(message, MAX_TEXT_LENGTH)}`),
  ].join('\n');
}
