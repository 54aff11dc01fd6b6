import { checkSource } from '../../stores/redis/client/check-source.js';
import { LockOptionsError } from '../../api/errors.js';
import type {
  AcquireOptions,
  RedisLockModuleOptions,
  RedisLockSettings,
  RedisSource,
  ReplicaOptions,
  WithLockOptions,
} from '../../api/options.js';

/** Options with every default filled in and every bound checked. */
export interface ResolvedOptions extends Required<
  Omit<RedisLockSettings, 'commandTimeoutMs' | 'waitForReplicas' | 'insideTransaction'>
> {
  /** Name of the registration; the default one is called `default`. */
  connection: string;
  /** Undefined: as long as the kind of backend takes by default. */
  commandTimeoutMs?: number;
  /** Undefined: replicas are not waited for. */
  waitForReplicas?: ReplicaOptions;
  /** Undefined: nothing is known of transactions. */
  insideTransaction?: () => boolean;
  backend: { kind: 'redis'; source: RedisSource } | { kind: 'redlock'; sources: RedisSource[] } | { kind: 'memory' };
}

/** What one call asks for, with the defaults of its service. */
export type LockRequest = Required<Omit<WithLockOptions, 'signal'>> & Pick<AcquireOptions, 'signal'>;

export const DEFAULT_CONNECTION = 'default';

const DEFAULTS = {
  ttlMs: 30_000,
  waitMs: 10_000,
  watchdog: true,
  reentrant: true,
  onTransaction: 'warn',
  onLost: 'reject',
  keyPrefix: 'lock',
  guardMs: 0,
  fair: false,
  maxWaiters: 10_000,
  cohortPasses: 100,
  cohortMs: 100,
  restartGuard: true,
  lazyConnect: false,
  connectTimeoutMs: 5_000,
  shutdownTimeoutMs: 10_000,
} as const satisfies RedisLockSettings;

const MAX_TIMER_MS = 2 ** 31 - 1; // setTimeout fires at once beyond it
const DAY_MS = 86_400_000;

type Check = (name: string, value: unknown) => void;

const CHECKS: Record<keyof LockRequest | keyof RedisLockSettings, Check> = {
  ttlMs: milliseconds(20, DAY_MS), // the fencing counter lives for a day after its last use
  waitMs: milliseconds(0, MAX_TIMER_MS),
  watchdog: oneOf(true, false),
  reentrant: oneOf(true, false),
  onTransaction: oneOf('warn', 'refuse', 'allow'),
  onLost: oneOf('reject', 'ignore'),
  signal: (name, value) => {
    if (!(value instanceof AbortSignal)) throw unfit(name, value, 'an AbortSignal');
  },
  keyPrefix: (name, value) => {
    // A brace would move the hash tag, and the keys of one lock to different slots of a Cluster.
    if (typeof value !== 'string' || !/^[^{}]{1,200}$/.test(value)) {
      throw unfit(name, value, 'a string of 1 to 200 characters without braces');
    }
  },
  commandTimeoutMs: milliseconds(10, 60_000),
  guardMs: milliseconds(0, DAY_MS),
  waitForReplicas: checkReplicas,
  fair: oneOf(true, false),
  maxWaiters: count(1, 1_000_000),
  cohortPasses: count(0, 1_000),
  cohortMs: milliseconds(0, 60_000),
  restartGuard: oneOf(true, false),
  insideTransaction: (name, value) => {
    if (typeof value !== 'function') throw unfit(name, value, 'a function that returns true or false');
  },
  lazyConnect: oneOf(true, false),
  connectTimeoutMs: milliseconds(10, 600_000),
  shutdownTimeoutMs: milliseconds(0, 600_000),
};

const CHECK_MEMORY = oneOf(true);

const REQUEST_OPTIONS = ['ttlMs', 'waitMs', 'watchdog', 'reentrant', 'onTransaction', 'onLost', 'signal'] as const;
const IS_OF_REQUEST = new Set<string>(REQUEST_OPTIONS);
/** Those of them that a kind of call does not have. */
const NOT_OF = {
  withLock: new Set<string>(),
  acquire: new Set<string>(['onLost']),
  tryAcquire: new Set<string>(['onLost', 'waitMs']),
};
/** By which method of the service a lock is asked for. */
export type CallKind = keyof typeof NOT_OF;
const SETTINGS = Object.keys(CHECKS).filter((name) => name !== 'signal') as (keyof RedisLockSettings)[];
const BACKENDS = ['redis', 'redlock', 'memory'] as const;

const BESIDE_FACTORY = 'name and isGlobal go beside useFactory, not into what it returns.';
const REDIS_OPTION = 'Did you mean redis: { host: ... }?';

/** What is meant by names that are no options. */
const MEANT_OF_A_SERVICE = {
  name: BESIDE_FACTORY,
  isGlobal: BESIDE_FACTORY,
  url: "Did you mean redis: 'redis://host:port'?",
  host: REDIS_OPTION,
  port: REDIS_OPTION,
  username: REDIS_OPTION,
  password: REDIS_OPTION,
  db: REDIS_OPTION,
};
const MEANT_OF_A_CALL = {
  connection: 'It belongs to @Locked: here inject the service of that registration, by @InjectLockService(name).',
  onContended: 'It belongs to @Locked: here catch LockContendedError, or use tryAcquire.',
  waitMs: 'tryAcquire never waits: use acquire, and catch LockContendedError.',
  onLost: 'It belongs to withLock and @Locked: here listen to lock.signal, or ask lock.assertHeld().',
};

/**
 * The one place where module options are checked and defaulted, whichever form of `forRoot` they came by.
 * @throws LockOptionsError what was wrong, what was got, what is expected
 */
export function resolveOptions(options: RedisLockModuleOptions, connection = DEFAULT_CONNECTION): ResolvedOptions {
  if (typeof options !== 'object' || options === null) throw unfit('options', options, 'an object');
  refuseUnknown(options, [...SETTINGS, ...BACKENDS], MEANT_OF_A_SERVICE);
  const settings = checked(options, SETTINGS);
  const resolved: ResolvedOptions = { ...DEFAULTS, ...settings, connection, backend: resolveBackend(options) };
  checkGuard(resolved.ttlMs, resolved.guardMs);
  checkTransactions(resolved, resolved);
  if (resolved.fair && resolved.backend.kind === 'redlock') {
    throw new LockOptionsError(
      'fair: true needs one Redis, a Cluster or memory: got redlock, whose nodes have no order of arrival in common.',
    );
  }
  if (resolved.waitForReplicas) checkReplicaWait(resolved, resolved.waitForReplicas);
  return resolved;
}

/**
 * Fills the options of one call with the defaults of its service.
 * @throws LockOptionsError for options that a single call cannot have, or with a value out of bounds
 */
export function resolveRequest(
  options: WithLockOptions | undefined,
  defaults: ResolvedOptions,
  call: CallKind = 'withLock',
): LockRequest {
  if (options === undefined) return defaults;
  if (typeof options !== 'object' || options === null) throw unfit('options', options, 'an object');
  for (const name in options) if (!IS_OF_REQUEST.has(name) || NOT_OF[call].has(name)) refuseForCall(options, call);
  const request = { ...pickDefaults(defaults), ...checked(options, REQUEST_OPTIONS) };
  if (options.ttlMs !== undefined) checkGuard(request.ttlMs, defaults.guardMs);
  checkTransactions(request, defaults);
  return request;
}

/** @throws LockOptionsError for options that a locked method cannot have, or with a value out of bounds */
export function checkRequest(options: object, also: readonly string[] = []): void {
  refuseUnknown(options, [...REQUEST_OPTIONS.filter((name) => name !== 'signal'), ...also]);
  checked(options, REQUEST_OPTIONS);
}

export function checkTtl(ttlMs: number, guardMs: number): void {
  CHECKS.ttlMs('ttlMs', ttlMs);
  checkGuard(ttlMs, guardMs);
}

function pickDefaults({ ttlMs, waitMs, watchdog, reentrant, onTransaction, onLost }: ResolvedOptions): LockRequest {
  return { ttlMs, waitMs, watchdog, reentrant, onTransaction, onLost };
}

function checked<K extends keyof typeof CHECKS>(options: Partial<Record<K, unknown>>, names: readonly K[]): object {
  const result: Partial<Record<K, unknown>> = {};
  for (const name of names) {
    const value = options[name];
    if (value === undefined) continue;
    CHECKS[name](name, value);
    result[name] = value;
  }
  return result;
}

function checkGuard(ttlMs: number, guardMs: number): void {
  if (guardMs >= ttlMs * 0.9) {
    throw new LockOptionsError(`guardMs must leave a tenth of ttlMs: got guardMs ${guardMs} with ttlMs ${ttlMs}.`);
  }
}

/** A refusal that could never come would be taken for safety. */
function checkTransactions({ onTransaction }: LockRequest, { insideTransaction }: ResolvedOptions): void {
  if (onTransaction === 'refuse' && !insideTransaction) {
    throw new LockOptionsError(
      'onTransaction "refuse" needs the module option insideTransaction, which says whether a call is inside a transaction.',
    );
  }
}

function checkReplicas(name: string, value: unknown): void {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) throw unfit(name, value, 'an object');
  const { count: replicas, timeoutMs } = value as Partial<ReplicaOptions>;
  refuseUnknown(value, ['count', 'timeoutMs']);
  count(1, 100)(`${name}.count`, replicas);
  milliseconds(1, 60_000)(`${name}.timeoutMs`, timeoutMs); // 0 would be WAIT without end
}

function checkReplicaWait({ backend, ttlMs }: ResolvedOptions, { timeoutMs }: ReplicaOptions): void {
  if (backend.kind !== 'redis') {
    throw new LockOptionsError(
      `waitForReplicas needs redis, whose replicas Redis keeps itself: got ${backend.kind}, which has none.`,
    );
  }
  // An extension that begins after a third of the ttl, behind one that waits in vain, must end before the lease does.
  if (timeoutMs > ttlMs / 3) {
    throw new LockOptionsError(
      `waitForReplicas.timeoutMs must be at most a third of ttlMs: got ${timeoutMs} with ttlMs ${ttlMs}.`,
    );
  }
}

function resolveBackend(options: RedisLockModuleOptions): ResolvedOptions['backend'] {
  const given = BACKENDS.filter((name) => options[name] !== undefined);
  if (given.length !== 1) {
    throw new LockOptionsError(
      `Exactly one of redis, redlock and memory is expected: got ${given.join(' and ') || 'none of them'}.`,
    );
  }
  if (options.memory !== undefined) {
    CHECK_MEMORY('memory', options.memory);
    return { kind: 'memory' };
  }
  if (options.redis !== undefined) {
    checkSource('redis', options.redis);
    return { kind: 'redis', source: options.redis };
  }
  const sources = options.redlock;
  if (!Array.isArray(sources)) throw unfit('redlock', sources, 'an array of Redis servers');
  if (sources.length < 3) {
    throw new LockOptionsError(
      `redlock needs at least 3 independent masters: got ${sources.length}. With one server use redis.`,
    );
  }
  sources.forEach((source, index) => checkSource(`redlock[${index}]`, source));
  return { kind: 'redlock', sources };
}

function milliseconds(min: number, max: number): Check {
  return count(min, max, 'a whole number of milliseconds');
}

function count(min: number, max: number, what = 'a whole number'): Check {
  return (name, value) => {
    if (!Number.isInteger(value) || (value as number) < min || (value as number) > max) {
      throw unfit(name, value, `${what} from ${min} to ${max}`);
    }
  };
}

function oneOf(...values: (string | boolean)[]): Check {
  return (name, value) => {
    if (!values.includes(value as string)) throw unfit(name, value, values.map((v) => JSON.stringify(v)).join(' or '));
  };
}

function refuseUnknown(options: object, known: readonly string[], meant: Readonly<Record<string, string>> = {}): void {
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const like = unknown.toLowerCase();
  const near = known.find((name) => [like, `${like}ms`].includes(name.toLowerCase()));
  const hint =
    near === undefined ? Object.entries(meant).find(([name]) => name === unknown)?.[1] : `Did you mean ${near}?`;
  throw new LockOptionsError(
    `There is no option "${unknown}": expected ${known.join(', ')}.${hint === undefined ? '' : ` ${hint}`}`,
  );
}

/** Of what the call does not have, `undefined` is nothing asked for; a name that is none is misspelt even then. */
function refuseForCall(options: object, call: CallKind): void {
  const given = Object.entries(options).filter(([name, value]) => value !== undefined || !NOT_OF[call].has(name));
  const known = REQUEST_OPTIONS.filter((name) => !NOT_OF[call].has(name));
  refuseUnknown(Object.fromEntries(given), known, MEANT_OF_A_CALL);
}

function unfit(name: string, got: unknown, expected: string): LockOptionsError {
  return new LockOptionsError(`${name} must be ${expected}: got ${describe(got)}.`);
}

/** A short form of a wrong value; of objects only the kind, since they may hold credentials. */
function describe(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.slice(0, 40));
  if (Array.isArray(value)) return 'an array';
  if (typeof value === 'object' && value !== null) return 'an object';
  return typeof value === 'function' ? 'a function' : String(value);
}
