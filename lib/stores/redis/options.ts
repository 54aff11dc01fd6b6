import { LockOptionsError } from '../../api/errors.js';
import {
  checked,
  count,
  fits,
  isRecord,
  milliseconds,
  oneOf,
  refuseUnknown,
  invalidOption,
  type Check,
} from '../../core/options/checks.js';
import type { ResolvedServiceOptions } from '../../core/options/service-options.js';
import { checkSource } from './client/check-source.js';
import type { RedisSource } from './client/source.js';

/** How many replicas must have a lock before it counts as held, and how long to wait for them. */
export interface ReplicaOptions {
  /** 1 to 100; Redis itself is not counted. */
  count: number;
  /** In milliseconds, 1 to 60 000, at most a third of `ttlMs`. A call that starts while others wait may take twice as long. */
  timeoutMs: number;
}

/** Options for locks on Redis. */
export interface RedisStoreOptions {
  /**
   * First part of every key in Redis: `<keyPrefix>:{<key>}`. Not empty, no braces.
   * @default 'lock'
   */
  keyPrefix?: string;
  /**
   * A node that leaves all commands unanswered for this long counts as unavailable, in milliseconds, 10 to 60 000.
   * @default 1000; for each node of a Redlock 5 % of the ttl, at least 50 and at most 200
   */
  commandTimeoutMs?: number;
  /**
   * Wait until this many replicas have a lock, and each extension of it, with the command WAIT on a separate connection. If they do not
   * have it in time, the lock is released, and the call fails with `LockUnavailableError`. A lock survives a
   * failover to a replica that has it, but this library cannot choose which replica is promoted. Only with `redis`.
   * @default does not wait for replicas
   */
  waitForReplicas?: ReplicaOptions;
  /**
   * Only with `redlock`: a node that has restarted or lost its data votes again only after the longest ttl in use plus two seconds. By
   * then all locks that it may have forgotten have expired. The two seconds protect the fencing tokens. A node that writes to disk before
   * it answers (`appendfsync always`) need not wait after a restart. If this is off, two calls can hold the same lock after a node came
   * back empty, and only fencing tokens help.
   * @default true
   */
  admission?: boolean;
}

/** Options of the store with every default filled in and every bound checked. */
export interface ResolvedRedisOptions extends Required<
  Omit<RedisStoreOptions, 'commandTimeoutMs' | 'waitForReplicas'>
> {
  /** Undefined for the default of `commandTimeoutOf`. */
  commandTimeoutMs?: number;
  /** Undefined if locks do not wait for replicas. */
  waitForReplicas?: ReplicaOptions;
}

/** The servers that keep the locks. */
export type RedisServers = { kind: 'redis'; source: RedisSource } | { kind: 'redlock'; sources: RedisSource[] };

const DEFAULTS = { keyPrefix: 'lock', admission: true } as const satisfies RedisStoreOptions;

export const REDIS_CHECKS: Readonly<Record<keyof RedisStoreOptions, Check>> = {
  // A brace would change the hash tag, and move the keys of one lock to different slots of a Cluster.
  keyPrefix: fits(
    (value) => typeof value === 'string' && /^[^{}]{1,200}$/.test(value),
    'a string of 1 to 200 characters without braces',
  ),
  commandTimeoutMs: milliseconds(10, 60_000),
  waitForReplicas: checkReplicas,
  admission: oneOf(true, false),
};

/**
 * Checks the options of the store and fills in their defaults; ignores other options.
 * @throws LockOptionsError for a value out of bounds
 */
export function resolveRedisOptions(options: RedisStoreOptions): ResolvedRedisOptions {
  return { ...DEFAULTS, ...checked(options, REDIS_CHECKS) };
}

/** Reads the servers from the options. @throws LockOptionsError for a source with which ioredis would connect elsewhere */
export function resolveServers({ redis, redlock }: { redis?: RedisSource; redlock?: RedisSource[] }): RedisServers {
  if (redis !== undefined) {
    checkSource('redis', redis);
    return { kind: 'redis', source: redis };
  }
  if (!Array.isArray(redlock)) throw invalidOption('redlock', redlock, 'an array of Redis servers');
  if (redlock.length < 3) {
    throw new LockOptionsError(
      `redlock needs at least 3 independent masters: got ${redlock.length}. With one server use redis.`,
    );
  }
  redlock.forEach((source, index) => checkSource(`redlock[${index}]`, source));
  return { kind: 'redlock', sources: redlock };
}

/** Checks that the store supports the options. @throws LockOptionsError for an unsupported option */
export function checkServed(
  kind: RedisServers['kind'] | 'memory',
  { fair, ttlMs, waitForReplicas }: ResolvedServiceOptions & ResolvedRedisOptions,
): void {
  if (fair && kind === 'redlock') {
    throw new LockOptionsError(
      'fair: true needs one Redis, a Cluster or memory: got redlock, whose nodes have no common order of arrival.',
    );
  }
  if (!waitForReplicas) return;
  if (kind !== 'redis') {
    throw new LockOptionsError(`waitForReplicas works only with the option redis: got ${kind}, which has no replicas.`);
  }
  // An extension begins after a third of the ttl, perhaps behind one that times out, and must end before the lease does.
  if (waitForReplicas.timeoutMs > ttlMs / 3) {
    throw new LockOptionsError(
      `waitForReplicas.timeoutMs must be at most a third of ttlMs: got ${waitForReplicas.timeoutMs} with ttlMs ${ttlMs}.`,
    );
  }
}

/** Returns the time limit of a command, in milliseconds: the option, or the default for this kind of store. */
export function commandTimeoutOf(
  kind: RedisServers['kind'],
  { commandTimeoutMs, ttlMs }: { commandTimeoutMs?: number; ttlMs: number },
): number {
  // A slow node of a Redlock must not use up the validity of the other votes.
  const byDefault = kind === 'redis' ? 1_000 : Math.round(Math.min(200, Math.max(50, ttlMs * 0.05)));
  return commandTimeoutMs ?? byDefault;
}

function checkReplicas(name: string, value: unknown): void {
  if (!isRecord(value)) throw invalidOption(name, value, 'an object');
  const { count: replicas, timeoutMs } = value;
  refuseUnknown(value, ['count', 'timeoutMs']);
  count(1, 100)(`${name}.count`, replicas);
  milliseconds(1, 60_000)(`${name}.timeoutMs`, timeoutMs); // 0 would make WAIT block forever
}
