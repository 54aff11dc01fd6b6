/** A command that the user of Redis needs the right to, and a form of it that changes nothing. */
export interface Right {
  /** Its name in `ACL SETUSER`, without the plus. */
  name: string;
  /** A command that changes nothing: on a key that does not exist, or a channel without listeners. */
  probe: readonly [command: string, ...args: string[]];
  /** The part of the library that does not work without it. */
  purpose: Purpose;
}

export type Purpose = 'locks' | 'waiting' | 'handOver' | 'sharding' | 'doctor';

/** The consequence of a missing right, by its purpose. */
export const WITHOUT: Record<Purpose, string> = {
  locks: 'no lock can be taken',
  waiting: 'locks are not handed over, and calls that have to wait take longer or fail',
  handOver: 'a lock that is handed over is confirmed before the work under it begins, which takes one more round trip',
  sharding: 'each lock that is handed over sends a message to all nodes of the Cluster',
  doctor: 'less can be checked',
};

const NO_SCRIPT = '0'.repeat(40);

/**
 * All commands of the library, its scripts included, that can be tried on the connection for locks. `SCAN` is not among them:
 * only `LockService.list` needs it, whose error names the right, and those who never list would be warned.
 * @param shard a channel for sharded messages, where they are used
 */
export function commandRights(key: string, channel: string, waitsForReplicas: boolean, shard?: string): Right[] {
  const [lock, wait] = ['locks', 'waiting'] as const;
  const toWait: Right = { name: 'wait', probe: ['WAIT', '0', '1'], purpose: lock };
  const sharded: Right[] =
    shard === undefined
      ? []
      : [
          { name: 'spublish', probe: ['SPUBLISH', shard, ''], purpose: 'sharding' },
          { name: 'pubsub|shardnumsub', probe: ['PUBSUB', 'SHARDNUMSUB', shard], purpose: 'sharding' },
        ];
  return [
    ...(waitsForReplicas ? [toWait] : []),
    { name: 'evalsha', probe: ['EVALSHA', NO_SCRIPT, '1', key], purpose: lock },
    { name: 'eval', probe: ['EVAL', 'return 1', '1', key], purpose: lock },
    { name: 'get', probe: ['GET', key], purpose: lock },
    { name: 'set', probe: ['SET', key, '', 'PX', '1', 'XX'], purpose: lock },
    { name: 'del', probe: ['DEL', key], purpose: lock },
    { name: 'pttl', probe: ['PTTL', key], purpose: lock },
    { name: 'pexpire', probe: ['PEXPIRE', key, '1'], purpose: lock },
    { name: 'time', probe: ['TIME'], purpose: lock },
    { name: 'zadd', probe: ['ZADD', key, 'XX', '1', ''], purpose: wait },
    { name: 'zrange', probe: ['ZRANGE', key, '0', '0'], purpose: wait },
    { name: 'zmscore', probe: ['ZMSCORE', key, ''], purpose: wait },
    { name: 'zrem', probe: ['ZREM', key, ''], purpose: wait },
    { name: 'zremrangebyscore', probe: ['ZREMRANGEBYSCORE', key, '1', '0'], purpose: wait },
    { name: 'publish', probe: ['PUBLISH', channel, ''], purpose: wait },
    { name: 'pubsub|numsub', probe: ['PUBSUB', 'NUMSUB', channel], purpose: 'handOver' },
    ...sharded,
  ];
}

/** The purpose of a right, or of a pattern of keys or channels, in the words of `missingRights`. */
export function purposeOf(right: string): Purpose {
  if (right.startsWith('~')) return 'locks';
  if (right.startsWith('&') || right === '+subscribe') return 'waiting';
  if (right === '+ssubscribe') return 'sharding';
  const all = commandRights('', '', true, '');
  return all.find(({ name }) => right === `+${name}`)?.purpose ?? 'doctor';
}
