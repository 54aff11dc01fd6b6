import { adviceFor, LockUnavailableError, NodeError } from '../../../api/errors.js';

/** The error of a node whose problem may be what Redis answered, with what to do about that answer. */
export function nodeError(node: string, problem: string, advice = adviceOn(problem)): NodeError {
  return new NodeError(node, problem, advice);
}

/** A server that refuses a command is up. */
function adviceOn(problem: string): string | undefined {
  // The command itself is refused, or a script that calls it: Redis 7.0 words that otherwise than later versions and Valkey.
  if (/NOPERM|can't run this command|ACL failure in script/.test(problem)) {
    return 'Give its user that right (ACL SETUSER); LockService.diagnose() names all that are missing.';
  }
  if (problem.includes('WRONGTYPE')) {
    return 'Another program keeps other data under that key: use another key, or another keyPrefix.';
  }
  if (/no answer within|does not answer/.test(problem)) {
    return 'Check that the server can be reached. If it can, it is too far away, or too busy, for commandTimeoutMs: raise that option.';
  }
  return /\b(OOM|MISCONF|NOREPLICAS)\b/.test(problem) ? 'It is up but refuses writes: find out why.' : undefined;
}

/** The error of an application whose start has waited for Redis: `errors` says why it cannot take locks, node by node. */
export function unreachable(errors: NodeError[], timeoutMs: number): LockUnavailableError {
  const nodes = errors.map((error) => error.message).join('; ');
  const message = errors.every(({ advice }) => advice !== undefined)
    ? `Redis cannot be used: ${nodes}. ${adviceFor(errors)}`
    : `Redis cannot be reached (waited ${timeoutMs} ms): ${nodes}. ` +
      'Start it, correct the address or the credentials, or set lazyConnect: true to start without it.';
  return new LockUnavailableError(message, undefined, errors);
}
