import { LockOptionsError } from '../../api/errors.js';
import type {
  AcquireOptions,
  HoldOptions,
  LimitOptions,
  LockPolicy,
  LockServiceOptions,
  ModeOptions,
  PermitCount,
  WithLockOptions,
  WithPolicy,
} from '../../api/options.js';
import { quoted } from '../../api/printable.js';
import { EXCLUSIVE, type Bounds, type Hold } from '../backend/lock-backend.js';
import { checked, count, DAY_MS, milliseconds, oneOf, refuseUnknown, unfit, type Check } from './checks.js';

/** The options of one call, with the defaults of its service. */
export type LockRequest = Required<
  Omit<WithLockOptions, 'signal' | 'holdMs' | 'maxHoldMs' | 'label' | 'mode' | 'scope' | 'policy'>
> &
  Pick<AcquireOptions, 'signal' | 'holdMs' | 'maxHoldMs' | 'label' | 'mode'> & {
    /** Whether its caller has to release the lock: it is noticed if nobody can any more. @default false */
    readonly isWatched?: boolean;
  };

/** The defaults of a service for its calls, and the options that bound them. */
export interface CallDefaults extends LockRequest, Pick<LockServiceOptions, 'insideTransaction'> {
  marginMs: number;
  policies: Policies;
}

/** The policies of a registration, by name. */
export type Policies = ReadonlyMap<string, LockPolicy>;

/** How a call wants to hold a lock, or permits, whose limit can come from its policy. */
export type AskedHold = Exclude<Hold, { mode: 'permits' }> | { mode: 'permits'; permits: number; limit?: number };

/** All who hold permits stand in one value of the store, which each call for the key reads. */
const MOST_PERMITS = 1_000;
const MAX_LABEL = 100;
const MAX_TIMER_MS = 2 ** 31 - 1; // setTimeout fires at once beyond it

/** Checks of options that a service has, too, as the defaults of its calls. */
export const LEASE_CHECKS = {
  ttlMs: milliseconds(20, DAY_MS),
  waitMs: milliseconds(0, MAX_TIMER_MS),
  watchdog: oneOf(true, false),
  reentrant: oneOf(true, false),
  onTransaction: oneOf('warn', 'refuse', 'allow'),
  onLost: oneOf('reject', 'ignore'),
} satisfies Record<string, Check>;

export const HOLD_CHECKS = {
  holdMs: milliseconds(0, DAY_MS),
  maxHoldMs: milliseconds(1, MAX_TIMER_MS),
} satisfies Record<keyof HoldOptions, Check>;

const checkPolicy: Check = (name, value) => {
  if (typeof value !== 'string' || value === '') throw unfit(name, value, 'the name of a policy');
};

/** Checks of options that a call and a locked method have. */
const METHOD_CHECKS = {
  ...LEASE_CHECKS,
  ...HOLD_CHECKS,
  mode: oneOf('exclusive', 'shared'),
  label: (name: string, value: unknown) => {
    const isLabel = typeof value === 'string' && value.length > 0 && value.length <= MAX_LABEL;
    if (!isLabel) throw unfit(name, value, `a string of 1 to ${MAX_LABEL} characters`);
  },
  scope: scopeOrNone,
  policy: checkPolicy,
};

/** Checks the scope that a call names itself. */
export function scopeOrNone(name: string, value: unknown): void {
  const isScope = value === null || (typeof value === 'string' && value !== '');
  if (!isScope) throw unfit(name, value, 'a string that is not empty, or null for none');
}

const CALL_CHECKS: Readonly<Record<keyof WithLockOptions, Check>> = {
  ...METHOD_CHECKS,
  signal: (name, value) => {
    if (!(value instanceof AbortSignal)) throw unfit(name, value, 'an AbortSignal');
  },
};

/** Options that permits do not have. */
const ONLY_OF_LOCKS = new Set(['holdMs', 'mode']);

const CALL_OPTIONS = Object.keys(CALL_CHECKS);
const IS_OF_CALL = new Set(CALL_OPTIONS);
/** The options that a kind of call does not have. */
const NOT_OF = {
  withLock: new Set<string>(),
  acquire: new Set<string>(['onLost']),
  tryAcquire: new Set<string>(['onLost', 'waitMs']),
};
/** The method of the service that is called. */
export type CallKind = keyof typeof NOT_OF;

/** Advice for names that are no options of a call. */
const MEANT = {
  registration:
    'It belongs to @Locked and @Limited: here inject the service of that registration with @InjectLockService(name).',
  onContended:
    'It belongs to @Locked and @Limited: here catch LockContendedError, or use tryAcquire or tryAcquirePermits.',
  onUnavailable: 'It belongs to @Locked and @Limited: here catch LockUnavailableError.',
  waitMs: 'It never waits: use acquire or acquirePermits, and catch LockContendedError.',
  onLost:
    'It belongs to withLock and @Locked, withPermits and @Limited: here listen to lock.signal, or call lock.assertHeld().',
};

/**
 * Fills the options of one call with those of its policy, and with the defaults of its service.
 * @param mode how it wants to hold the lock, if its options do not say that
 * @throws LockOptionsError for options that a single call cannot have, or with a value out of bounds; for a policy that is not
 *   known, or has options that the call cannot have
 */
export function resolveRequest(
  options: WithLockOptions,
  defaults: CallDefaults,
  call: CallKind = 'withLock',
  mode?: Hold['mode'],
): LockRequest {
  if (typeof options !== 'object' || options === null) throw unfit('options', options, 'an object');
  for (const name in options) if (!IS_OF_CALL.has(name) || NOT_OF[call].has(name)) refuseForCall(options, call);
  const policy = policyOf(options, defaults.policies);
  const ofPolicy = policy && optionsOf(policy, options.policy!, call, mode);
  const request = { ...pickDefaults(defaults), ...ofPolicy, ...checked(options, CALL_CHECKS) };
  if (options.ttlMs !== undefined) checkMargin(request.ttlMs, defaults.marginMs);
  checkHold(request);
  checkTransactions(request, defaults);
  return request;
}

/**
 * @param also the names of options that are checked elsewhere
 * @throws LockOptionsError for options that a decorated method which holds its lock so cannot have, or with a value out of bounds
 */
export function checkRequest(options: object, also: readonly string[] = [], { mode }: AskedHold = EXCLUSIVE): void {
  const known = Object.keys(METHOD_CHECKS).filter((name) => mode !== 'permits' || !ONLY_OF_LOCKS.has(name));
  refuseUnknown(options, [...known, ...also]);
  checked(options, METHOD_CHECKS);
  checkHold(options);
}

/**
 * The policy that a call names.
 * @returns undefined: it names none
 * @throws LockOptionsError for one that its registration does not have
 */
export function policyOf({ policy: name }: WithPolicy, policies: Policies): LockPolicy | undefined {
  if (name === undefined) return undefined;
  checkPolicy('policy', name);
  const policy = policies.get(name);
  if (policy) return policy;
  const advice =
    policies.size > 0
      ? `expected ${[...policies.keys()].map(quoted).join(', ')}.`
      : 'the registration has none. Name it in the option policies of its forRoot.';
  throw new LockOptionsError(`There is no policy ${quoted(name)}: ${advice}`);
}

/** What a policy has for one call. @throws LockOptionsError for options that the call cannot have */
function optionsOf({ limit, ...options }: LockPolicy, name: string, call: CallKind, mode?: Hold['mode']): LockPolicy {
  if (mode !== 'permits' && limit !== undefined) {
    throw new LockOptionsError(
      `The policy ${quoted(name)} has a limit, which a lock does not have: name another policy, or use @Limited or withPermits.`,
    );
  }
  if (mode === 'permits' && options.holdMs !== undefined) {
    throw new LockOptionsError(
      `The policy ${quoted(name)} has holdMs, which permits do not have: they are given back when the work has ended. ` +
        'Name another policy, or use a lock.',
    );
  }
  return call === 'tryAcquire' ? { ...options, waitMs: 0 } : options;
}

export const PERMIT_CHECKS = { limit: count(1, MOST_PERMITS), permits: count(1, MOST_PERMITS) };

/**
 * Splits the options of a call for permits.
 * @returns how it wants to hold them, and the options that every call has
 * @throws LockOptionsError
 */
export function permitsOf<Options extends object>(
  options: Options & LimitOptions,
): { hold: AskedHold; rest: Omit<Options, keyof PermitCount> } {
  if (typeof options !== 'object' || options === null) throw unfit('options', options, 'an object with a limit');
  const { limit, permits = 1, ...rest } = options;
  if (limit !== undefined || options.policy === undefined) PERMIT_CHECKS.limit('limit', limit);
  PERMIT_CHECKS.permits('permits', permits);
  if (limit !== undefined) checkPermits(permits, limit);
  const { holdMs, mode } = rest as HoldOptions & ModeOptions;
  if (holdMs !== undefined) {
    throw new LockOptionsError('Permits take no holdMs: they are given back when the work has ended. Use a lock.');
  }
  if (mode !== undefined) throw new LockOptionsError('Permits take no mode: for a lock that is shared, use acquire.');
  return { hold: { mode: 'permits', permits, limit }, rest };
}

/**
 * How a call holds its lock, or its permits.
 * @param options of the call, whose policy may have the limit
 * @throws LockOptionsError
 */
export function holdOf(asked: AskedHold, options: WithPolicy, policies: Policies): Hold {
  if (asked.mode !== 'permits') return asked;
  const { mode, permits, limit = policyOf(options, policies)?.limit } = asked;
  if (limit === undefined) {
    throw new LockOptionsError(
      `The policy ${quoted(options.policy!)} has no limit: give it one, or the call. It says how many permits of the key there are.`,
    );
  }
  checkPermits(permits, limit);
  return { mode, permits, limit };
}

/** @throws LockOptionsError */
function checkPermits(permits: number, limit: number): void {
  if (permits <= limit) return;
  throw new LockOptionsError(`permits must be at most limit: got permits ${permits} with limit ${limit}.`);
}

/** @throws LockOptionsError */
export function checkTtl(ttlMs: number, marginMs: number, bounds: Bounds): void {
  LEASE_CHECKS.ttlMs('ttlMs', ttlMs);
  checkMargin(ttlMs, marginMs);
  checkBounds({ ttlMs }, bounds);
}

/** Checks the times that a call asks for against the bounds of the store. @throws LockOptionsError */
export function checkBounds(
  { ttlMs, holdMs = 0 }: Pick<LockRequest, 'ttlMs' | 'holdMs'>,
  { shortestTtlMs, longestMs }: Bounds,
): void {
  if (shortestTtlMs && ttlMs < shortestTtlMs.ms) {
    throw new LockOptionsError(`ttlMs must be at least ${shortestTtlMs.ms}: got ${ttlMs}. ${shortestTtlMs.because}`);
  }
  for (const [name, ms] of Object.entries({ ttlMs, holdMs })) {
    if (longestMs && ms > longestMs.ms)
      throw new LockOptionsError(`${name} must be at most ${longestMs.ms}: got ${ms}. ${longestMs.because}`);
  }
}

/** @throws LockOptionsError */
export function checkMargin(ttlMs: number, marginMs: number): void {
  if (marginMs >= ttlMs * 0.9) {
    throw new LockOptionsError(`marginMs must leave a tenth of ttlMs: got marginMs ${marginMs} with ttlMs ${ttlMs}.`);
  }
}

/** @throws LockOptionsError for a longest time that is shorter than the shortest, or for a shared lock that is to be kept */
export function checkHold({ holdMs = 0, maxHoldMs = Infinity, mode }: HoldOptions & ModeOptions): void {
  if (mode === 'shared' && holdMs > 0) {
    throw new LockOptionsError(
      `A shared lock is not kept after its work: leave out holdMs, or the mode. Got holdMs ${holdMs}.`,
    );
  }
  if (maxHoldMs < holdMs) {
    throw new LockOptionsError(`maxHoldMs must be at least holdMs: got maxHoldMs ${maxHoldMs} with holdMs ${holdMs}.`);
  }
}

/** Refuses `onTransaction: 'refuse'` where it could have no effect, since it would look safe. @throws LockOptionsError */
export function checkTransactions(
  { onTransaction }: Pick<LockRequest, 'onTransaction'>,
  { insideTransaction }: Pick<LockServiceOptions, 'insideTransaction'>,
): void {
  if (onTransaction === 'refuse' && !insideTransaction) {
    throw new LockOptionsError(
      'onTransaction "refuse" needs the module option insideTransaction, which says whether a call is inside a transaction.',
    );
  }
}

function pickDefaults(defaults: LockRequest): LockRequest {
  const { ttlMs, waitMs, watchdog, reentrant, onTransaction, onLost, isWatched } = defaults;
  return { ttlMs, waitMs, watchdog, reentrant, onTransaction, onLost, isWatched };
}

/** Refuses options that this kind of call does not have, unless they are `undefined`, and names that no call has in any case. */
function refuseForCall(options: object, call: CallKind): void {
  const given = Object.entries(options).filter(([name, value]) => value !== undefined || !NOT_OF[call].has(name));
  const known = CALL_OPTIONS.filter((name) => !NOT_OF[call].has(name));
  refuseUnknown(Object.fromEntries(given), known, MEANT);
}
