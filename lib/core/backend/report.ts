import type { Finding, LockDiagnosis, LockPing, NodeReport } from '../../api/diagnosis.js';
import type { LockError, NodeError } from '../../api/errors.js';

/** How long a backend may check its servers, in milliseconds. A server that has not answered by then counts as unreachable. */
export const REPORT_TIMEOUT_MS = 1_000;

/** The key that a ping inspects. No call locks it. */
export const PING_KEY = 'nest-redis-lock:ping';

/** A backend's answer to a ping. */
export type BackendPing = Pick<LockPing, 'available' | 'nodes' | 'problems'>;

/** The answer to a ping of a store that counts as one server. @param problem undefined: the store has answered */
export function pingOfOne(problem?: NodeError): BackendPing {
  const available = problem === undefined;
  return { available, nodes: { voting: available ? 1 : 0, of: 1 }, problems: available ? [] : [problem] };
}

/** A backend's report on the servers that keep its locks. */
export interface BackendReport {
  /** The kind of the backend, for programs: `redis`. */
  backend: string;
  /** The kind of the backend, as the end of a sentence after "locks": `on one Redis`. */
  where: string;
  /** Each server once; none where there is no server. */
  nodes: NodeReport[];
  /** The errors come first. */
  findings: Finding[];
  /**
   * Why the application must not start with these servers: with this set-up two calls could hold the same lock, or no call can ever get a lock.
   * A server that is just down is not a reason.
   */
  refusal?: LockError;
}

/** The report of a store that counts as one server. @param problem undefined: the store has answered */
export function reportOfOne(name: string, problem?: NodeError): BackendReport {
  const where = `in ${name}`;
  if (!problem) return { backend: name, where, nodes: [{ name, reachable: true, summary: 'answers' }], findings: [] };
  const { problem: text, advice } = problem;
  const message = `${name} could not be checked: ${text}.${advice === undefined ? '' : ` ${advice}`}`;
  return {
    backend: name,
    where,
    nodes: [{ name, reachable: false, problem: text, summary: `does not answer (${text})` }],
    findings: [{ severity: 'error', code: 'unreachable', node: name, message }],
  };
}

/** The report of a registration, for operators. */
export function diagnosisOf(registration: string, { backend, where, nodes, findings }: BackendReport): LockDiagnosis {
  return { registration, backend, where, checkedAt: new Date().toISOString(), nodes, findings };
}
