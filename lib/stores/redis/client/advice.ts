import { adviceFor, LockUnavailableError, NodeError } from '../../../api/errors.js';

/** Creates the error of a node, with advice if the problem is a known answer of Redis. */
export function nodeError(node: string, problem: string, advice = adviceOn(problem), isOfKey = false): NodeError {
  return new NodeError(node, problem, advice, isOfKey);
}

/** Advice for a client without a password whose server needs one. */
export const NEEDS_PASSWORD =
  'Put the password into the URL (redis://:password@host:6379), or set the option password: for a Cluster in redisOptions of ioredis, or in ' +
  'defaults of node-redis.';

/** Advice by the first word of an error. */
const ADVICE: Readonly<Record<string, string>> = {
  OOM: 'Its memory is full: raise maxmemory, or find what fills it. Locks need little memory.',
  MISCONF:
    'It cannot write to its disk, and refuses writes until it can (stop-writes-on-bgsave-error): check its log and its free disk space.',
  NOREPLICAS: 'Too few replicas follow it for min-replicas-to-write: start them, or lower that setting.',
  BUSY:
    'A script or function runs too long on that server: find who runs it, and end it with SCRIPT KILL or FUNCTION KILL. The ' +
    'scripts of this library take less than a millisecond.',
};

function adviceOn(problem: string): string | undefined {
  const right = rightOf(problem);
  if (right !== undefined) return `Give its user ${right} (ACL SETUSER).`;
  if (/^not connected .*\b(certificate|altnames)\b/.test(problem)) {
    if (problem.includes('certificate has expired'))
      return 'Its certificate, or the certificate of its authority, has expired: renew it, and restart the server.';
    if (problem.includes('alert certificate required'))
      return 'It requires a client certificate: give cert and key in the option tls (node-redis: in socket), or set tls-auth-clients no.';
    return (
      'Its TLS certificate is not trusted: give the certificate of its authority in NODE_EXTRA_CA_CERTS, or as ca in the option tls ' +
      '(node-redis: in socket), and connect by a name that the certificate contains.'
    );
  }
  // From the server, or from a named node of a Cluster, but not from a Sentinel, which has its own password.
  if (/^(not connected \(\w+\): )?(\S+: )?NOAUTH/.test(problem)) return NEEDS_PASSWORD;
  if (problem.includes('WRONGTYPE')) {
    return 'Another program keeps other data under that key: use another key, or another keyPrefix.';
  }
  if (/no answer within|does not answer/.test(problem)) {
    return 'Check that the server can be reached. If it can, it is too far away, or too busy, for commandTimeoutMs: raise that option.';
  }
  if (/fencing counter \S+ is out of range/.test(problem)) {
    return (
      'Another program wrote it, or the clock of that server was centuries ahead. Tokens then restart from the clock of this server, and a ' +
      'resource that has seen a larger token refuses them.'
    );
  }
  const [, code = ''] = /\b(OOM|MISCONF|NOREPLICAS|BUSY) /.exec(problem) ?? [];
  return ADVICE[code];
}

/** The commands that locks on one Redis need. docs/rights.md lists their purposes. */
export const COMMANDS =
  '+evalsha +eval +get +set +del +pttl +pexpire +time +zadd +zrange +zmscore +zrem +zremrangebyscore +publish +subscribe +pubsub|numsub';

/** Returns the right that is missing according to this answer. Before 7.0 Redis does not name the refused command of a script. */
function rightOf(problem: string): string | undefined {
  if (!/NOPERM|can't run this command|ACL failure in script/.test(problem)) return undefined;
  if (/access (a|one of the) keys?/.test(problem)) return 'the right to the keys of locks, such as ~lock:*';
  const [, command] = /run the '([^']+)' command/.exec(problem) ?? [];
  return command === undefined ? `all rights that locks need: ${COMMANDS}` : `the right +${command}`;
}

/** Creates the error of an application whose start has waited for Redis. @param errors the problems of the nodes */
export function unreachable(errors: NodeError[], timeoutMs: number): LockUnavailableError {
  const nodes = errors.map((error) => error.message).join('; ');
  const message = errors.every(({ advice }) => advice !== undefined)
    ? `Redis cannot be used: ${nodes}. ${adviceFor(errors)}`
    : `Redis cannot be reached (waited ${timeoutMs} ms): ${nodes}. ` +
      'Start it, correct the address, the credentials or TLS (rediss:// or the option tls if, and only if, the server has TLS), or set ' +
      'lazyConnect: true to start without it.';
  return new LockUnavailableError(message, undefined, errors);
}
