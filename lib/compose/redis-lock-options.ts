import { LockOptionsError } from '../api/errors.js';
import type { LockServiceOptions } from '../api/options.js';
import { oneOf, refuseUnknown, unfit } from '../core/options/checks.js';
import {
  DEFAULT_REGISTRATION,
  resolveServiceOptions,
  type ResolvedServiceOptions,
} from '../core/options/service-options.js';
import { CHECKS } from '../core/options/option-rows.js';
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

/** Settings of one registration of the module. */
export interface RedisLockSettings extends LockServiceOptions, RedisStoreOptions {}

/** Exactly one of `redis`, `redlock` and `memory`, and the settings. */
export type RedisLockModuleOptions = RedisLockSettings &
  (
    | {
        /** Locks in the memory of this process, for unit tests and first steps. They do not exclude other processes. */
        memory: true;
        redis?: never;
        redlock?: never;
      }
    | {
        /** At least 3 independent masters, an odd number: a lock is held when a majority granted it. */
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
export interface ResolvedOptions extends ResolvedServiceOptions, ResolvedRedisOptions {
  /** Name of the registration; the default one is called `default`. */
  registration: string;
  backend: RedisServers | { kind: 'memory' };
}

const BACKENDS = ['redis', 'redlock', 'memory'] as const;
const NAMES = [...Object.keys(CHECKS.service), ...Object.keys(REDIS_CHECKS), ...BACKENDS];
const CHECK_MEMORY = oneOf(true);

const BESIDE_FACTORY = 'name and isGlobal go beside useFactory, not into what it returns.';
const REDIS_OPTION = 'Did you mean redis: { host: ... }?';

/** Advice for names that are no options. */
const MEANT = {
  name: BESIDE_FACTORY,
  isGlobal: BESIDE_FACTORY,
  url: "Did you mean redis: 'redis://host:port'?",
  host: REDIS_OPTION,
  port: REDIS_OPTION,
  username: REDIS_OPTION,
  password: REDIS_OPTION,
  db: REDIS_OPTION,
};

/**
 * The one place where module options are checked and defaulted, whichever form of `forRoot` they came by.
 * @throws LockOptionsError for an unknown option, or a value out of bounds
 */
export function resolveOptions(options: RedisLockModuleOptions, registration = DEFAULT_REGISTRATION): ResolvedOptions {
  if (typeof options !== 'object' || options === null) throw unfit('options', options, 'an object');
  refuseUnknown(options, NAMES, MEANT);
  const settings = { ...resolveRedisOptions(options), ...resolveServiceOptions(options) };
  const backend = resolveBackend(options);
  checkServed(backend.kind, settings);
  return { ...settings, registration, backend };
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
