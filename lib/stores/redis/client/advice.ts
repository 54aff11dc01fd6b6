import { NodeError } from '../../../api/errors.js';

/** The error of a node whose problem may be what Redis answered, with what to do about that answer. */
export function nodeError(node: string, problem: string, advice = adviceOn(problem)): NodeError {
  return new NodeError(node, problem, advice);
}

/** A server that refuses a command is up. */
function adviceOn(problem: string): string | undefined {
  // By itself, or in a script.
  if (/NOPERM|can't run this command/.test(problem)) {
    return 'Give its user that right (ACL SETUSER); LockService.diagnose() names all that are missing.';
  }
  if (problem.includes('WRONGTYPE')) {
    return 'Another program keeps other data under that key: use another key, or another keyPrefix.';
  }
  return /\b(OOM|MISCONF|NOREPLICAS)\b/.test(problem) ? 'It is up but refuses writes: find out why.' : undefined;
}
