import { LockOptionsError, LockUnavailableError } from '../api/errors.js';
import type { LockServiceOptions } from '../api/options.js';
import { fromPromises, type PromiseBackend } from '../core/backend/from-promises.js';
import type { LockBackend } from '../core/backend/lock-backend.js';
import { checked, described, isClass, isFunction, milliseconds, invalidOption } from '../core/options/checks.js';
import { closeStore } from '../core/service/shutdown.js';
import { inTime } from '../core/time/time-limit.js';
import type { ResolvedLockOptions, StoreKind } from './composition.js';

/** A store of your own, and the settings. */
export interface LockModuleOptions extends LockServiceOptions {
  /**
   * Makes the store, as in `backend: () => new MyStore()`. The library calls it once for each registration, at the start of the
   * application, for at most `connectTimeoutMs`. It closes the store with the application.
   */
  backend: () => PromiseBackend | Promise<PromiseBackend>;
  /**
   * Time limit of one operation of the store, in milliseconds, 10 to 60 000. For an attempt to acquire, `attemptTimeoutMs()` of the
   * store counts, if the store has it.
   * @default 1000
   */
  commandTimeoutMs?: number;
}

/** For `forRootAsync({ useClass | useExisting })`. */
export interface LockOptionsFactory {
  createLockOptions(): LockModuleOptions | Promise<LockModuleOptions>;
}

/** Options with every default filled in and every bound checked. */
interface ResolvedBackendOptions extends ResolvedLockOptions {
  backend: { readonly kind: 'backend'; readonly make: LockModuleOptions['backend'] };
  commandTimeoutMs: number;
}

const CHECKS = { commandTimeoutMs: milliseconds(10, 60_000) };
const REDIS_MODULE_HINT = 'It is an option of RedisLockModule.';
const SQL_MODULE_HINT = 'It is an option of SqlLockModule of nest-redis-lock/sql.';

/** Locks in a store of your own. */
export const BACKEND: StoreKind<LockModuleOptions, ResolvedBackendOptions> = {
  names: ['backend', ...Object.keys(CHECKS)],
  meant: {
    store: 'Did you mean backend?',
    redis: REDIS_MODULE_HINT,
    redlock: REDIS_MODULE_HINT,
    memory: REDIS_MODULE_HINT,
    postgres: SQL_MODULE_HINT,
    mysql: SQL_MODULE_HINT,
  },
  resolve: (options) => {
    const { backend: make } = options;
    if (!isFunction(make) || isClass(make))
      throw new LockOptionsError(
        `backend must be a function that makes the store, as in backend: () => new MyStore(): got ${isClass(make) ? 'a class' : described(make)}.`,
      );
    return { commandTimeoutMs: 1_000, ...checked(options, CHECKS), backend: { kind: 'backend', make } };
  },
  open: openBackend,
};

/** @throws LockOptionsError for an object that is not a store, or cannot serve the options; LockUnavailableError if backend() takes too long */
async function openBackend(options: ResolvedBackendOptions, now: () => number): Promise<LockBackend> {
  const { backend, commandTimeoutMs, connectTimeoutMs, fair } = options;
  const making = Promise.resolve(backend.make());
  const store = await inTime(making, connectTimeoutMs, () => {
    making.then((late) => late.close?.()).catch(() => {}); // nobody waits for it any longer
    throw new LockUnavailableError(
      `backend() has returned no store within ${connectTimeoutMs} ms. Connect in the store's connect() instead, or raise connectTimeoutMs.`,
    );
  });
  if (typeof store !== 'object' || store === null) throw invalidOption('the result of backend()', store, 'a store');
  const opened = fromPromises(store, now, commandTimeoutMs);
  const problem = problemOf(store, fair);
  if (problem === undefined) return opened;
  const closing = { attemptTimeoutMs: () => commandTimeoutMs, close: () => opened.close() };
  await closeStore(closing).catch(() => {}); // report the problem, not the error of closing
  throw new LockOptionsError(problem);
}

/** An hour, so that multiples of it are still valid for timers of Node.js. */
const LONGEST_ATTEMPT_MS = 3_600_000;
const METHODS = ['acquire', 'extend', 'release', 'inspect', 'list', 'forceRelease'] as const;

/** Returns the reason why a registration cannot use the store. */
function problemOf(store: Partial<PromiseBackend>, fair: boolean): string | undefined {
  const methods = METHODS.filter((name) => !isFunction(store[name]));
  const missing = typeof store.name === 'string' ? methods : ['name', ...methods];
  if (missing.length > 0) return `The store that backend() makes has no ${missing.join(', ')}: see PromiseBackend.`;
  const time = problemOfTime(store);
  if (time !== undefined)
    return `attemptTimeoutMs() of the store must return a number of milliseconds up to ${LONGEST_ATTEMPT_MS}: ${time}.`;
  if (fair && !store.waitQueue?.handsOver)
    return `fair needs a queue that hands locks over, and the store ${store.name} has none: remove fair.`;
  return undefined;
}

function problemOfTime(store: Partial<PromiseBackend>): string | undefined {
  try {
    const ms: unknown = store.attemptTimeoutMs?.() ?? 1;
    return typeof ms === 'number' && ms > 0 && ms <= LONGEST_ATTEMPT_MS ? undefined : `got ${described(ms)}`;
  } catch (error) {
    return String(error); // it is not a function, or throws
  }
}
