import { LockOptionsError } from '../api/errors.js';
import type { LockServiceOptions } from '../api/options.js';
import { oneOf } from '../core/options/checks.js';
import { MemoryBackend } from '../stores/memory/memory.backend.js';
import type { RedisSource } from '../stores/redis/client/source.js';
import {
  checkServed,
  REDIS_CHECKS,
  resolveRedisOptions,
  resolveServers,
  type RedisServers,
  type RedisStoreOptions,
  type ResolvedRedisOptions,
} from '../stores/redis/options.js';
import type { Notice, ResolvedLockOptions, StoreKind } from './composition.js';

/** Settings of one registration of the module. */
export interface RedisLockSettings extends LockServiceOptions, RedisStoreOptions {}

/** Exactly one of `redis`, `redlock` and `memory`, and the settings. */
export type RedisLockModuleOptions = RedisLockSettings &
  (
    | {
        /** Whether to keep locks in the memory of this process, for unit tests and first steps. They do not exclude other processes. */
        memory: true;
        redis?: never;
        redlock?: never;
      }
    | {
        /** The servers of a Redlock: an odd number of independent masters, at least 3. A lock is held if a majority granted it. */
        redlock: RedisSource[];
        redis?: never;
        memory?: never;
      }
    | {
        /** One Redis server, one Sentinel-managed master, or one Cluster. */
        redis: RedisSource;
        redlock?: never;
        memory?: never;
      }
  );

/** For `forRootAsync({ useClass | useExisting })`. */
export interface RedisLockOptionsFactory {
  createRedisLockOptions(): RedisLockModuleOptions | Promise<RedisLockModuleOptions>;
}

/** Options with every default filled in and every bound checked. */
export interface ResolvedOptions extends ResolvedLockOptions, ResolvedRedisOptions {
  backend: RedisServers | { kind: 'memory' };
}

const BACKENDS = ['redis', 'redlock', 'memory'] as const;
const CHECK_MEMORY = oneOf(true);
const REDIS_OPTION = 'Did you mean redis: { host: ... }?';

/** Locks on Redis, on a Redlock, or in memory. */
export const REDIS: StoreKind<RedisLockModuleOptions, ResolvedOptions> = {
  names: [...Object.keys(REDIS_CHECKS), ...BACKENDS],
  meant: {
    url: "Did you mean redis: 'redis://host:port'?",
    host: REDIS_OPTION,
    port: REDIS_OPTION,
    username: REDIS_OPTION,
    password: REDIS_OPTION,
    db: REDIS_OPTION,
  },
  resolve: (options, settings) => {
    const store = resolveRedisOptions(options);
    const backend = resolveBackend(options);
    checkServed(backend.kind, { ...settings, ...store });
    return { ...store, backend };
  },
  open: async (options, now, processName) => {
    const { backend } = options;
    if (backend.kind === 'memory') return new MemoryBackend(now);
    // Loaded only when needed: applications with locks in memory need no ioredis.
    const { openRedis, openRedlock } = await import('./open-redis.js');
    return backend.kind === 'redis'
      ? openRedis(backend.source, options, now, processName)
      : openRedlock(backend.sources, options, now, processName);
  },
  noticesOn: ({ backend }) => (backend.kind === 'redlock' ? evenNumber(backend.sources.length) : []),
};

function evenNumber(count: number): Notice[] {
  if (count % 2 === 1) return [];
  const message = `redlock has ${count} nodes, which tolerate no more failures than ${count - 1} nodes: use an odd number.`;
  return [{ level: 'warn', message }];
}

function resolveBackend(options: RedisLockModuleOptions): ResolvedOptions['backend'] {
  const given = BACKENDS.filter((name) => options[name] !== undefined);
  if (given.length !== 1) {
    const unset = BACKENDS.find((name) => name in options);
    const got =
      given.join(' and ') || (unset === undefined ? 'none of them.' : `${unset}: undefined. Is the variable set?`);
    throw new LockOptionsError(
      `Exactly one of redis, redlock and memory is expected: got ${got}${given.length > 0 ? '.' : ''}`,
    );
  }
  if (options.memory === undefined) return resolveServers(options);
  CHECK_MEMORY('memory', options.memory);
  return { kind: 'memory' };
}
