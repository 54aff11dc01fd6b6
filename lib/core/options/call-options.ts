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
import { SHARED, type Bounds, type Hold } from '../backend/lock-backend.js';
import { checked, isOptions, refuseUnknown, invalidOption } from './checks.js';
import { checkOption, CHECKS, type CallKind } from './option-rows.js';

/** The options of one call, with the defaults of its service. */
export type LockRequest = Required<
  Omit<
    WithLockOptions,
    'signal' | 'holdMs' | 'maxHoldMs' | 'awaitRelease' | 'label' | 'note' | 'mode' | 'scope' | 'policy'
  >
> &
  Pick<AcquireOptions, 'signal' | 'holdMs' | 'maxHoldMs' | 'label' | 'note' | 'mode'> & {
    /** @default exclusive */
    readonly hold?: Hold;
    /** Whether the lock may be passed on within the process, to this call and from it. @default true */
    readonly cohort?: boolean;
  };

/** The defaults of a service for its calls, and the options that limit them. */
export interface CallDefaults extends LockRequest, Pick<LockServiceOptions, 'insideTransaction'> {
  marginMs: number;
  policies: Policies;
}

/** The policies of a registration, by name. */
export type Policies = ReadonlyMap<string, LockPolicy>;

/** How a call wants to hold a lock. For permits, its policy can have the limit. */
export type AskedHold = Exclude<Hold, { mode: 'permits' }> | { mode: 'permits'; permits: number; limit?: number };

const METHODS_ONLY = 'It belongs to @Locked and @Limited: here';
/** Advice for options that a call does not have. */
const OPTION_HINTS = {
  registration: `${METHODS_ONLY} inject the service of that registration with @InjectLockService(name).`,
  onContended: `${METHODS_ONLY} catch LockContendedError, or use tryAcquire or tryAcquirePermits.`,
  onUnavailable: `${METHODS_ONLY} catch LockUnavailableError.`,
  waitMs: 'It never waits: use acquire or acquirePermits, and catch LockContendedError.',
  onLost:
    'It belongs to withLock and @Locked, withPermits and @Limited: here listen to lock.signal, or call lock.assertHeld().',
  awaitRelease: 'It belongs to withLock and @Locked, withPermits and @Limited: here do not await lock.release().',
};

/**
 * Completes the options of one call with the options of its policy, and with the defaults of its service.
 * @param asked how it wants to hold the lock, unless its options say that
 * @throws LockOptionsError for options that the call cannot have, a value out of bounds, or an unknown policy
 */
export function resolveRequest(
  options: WithLockOptions = {},
  defaults: CallDefaults,
  call: CallKind = 'withLock',
  asked?: AskedHold,
): LockRequest {
  if (!isOptions(options)) throw invalidOption('options', options, 'an object');
  const checks = CHECKS[call];
  for (const name in options)
    if (!Object.hasOwn(checks, name)) refuseForCall(options, name as keyof WithLockOptions, call);
  const policy = policyOf(options, defaults.policies);
  const ofPolicy = policy && optionsOf(policy, options.policy!, call, asked?.mode);
  const request = { ...pickDefaults(defaults), ...ofPolicy, ...checked(options, checks) };
  if (options.ttlMs !== undefined) checkMargin(request.ttlMs, defaults.marginMs);
  checkHold(request);
  checkTransactions(request, defaults);
  const hold = asked ? holdOf(asked, options.policy, policy) : request.mode === 'shared' ? SHARED : undefined;
  // The time limit of one call must not end the lock of others.
  const cohort = hold?.mode === 'shared' && request.maxHoldMs ? false : undefined;
  return hold ? { ...request, hold, cohort } : request;
}

/**
 * The policy that a call names.
 * @returns undefined if it names none
 * @throws LockOptionsError for an unknown policy
 */
export function policyOf({ policy: name }: WithPolicy, policies: Policies): LockPolicy | undefined {
  if (name === undefined) return undefined;
  checkOption('withLock', 'policy', name);
  const policy = policies.get(name);
  if (policy) return policy;
  const advice =
    policies.size > 0
      ? `expected ${[...policies.keys()].map(quoted).join(', ')}.`
      : 'the registration has no policies. Add it to the option policies of forRoot.';
  throw new LockOptionsError(`There is no policy ${quoted(name)}: ${advice}`);
}

/** The options of a policy for one call. @throws LockOptionsError for options that the call cannot have */
function optionsOf({ limit, ...options }: LockPolicy, name: string, call: CallKind, mode?: Hold['mode']): LockPolicy {
  if (mode !== 'permits' && limit !== undefined) {
    throw new LockOptionsError(
      `The policy ${quoted(name)} has a limit, which a lock does not have: name another policy, or use @Limited or withPermits.`,
    );
  }
  if (mode === 'permits' && options.holdMs !== undefined) {
    throw new LockOptionsError(
      `The policy ${quoted(name)} has holdMs, which permits do not have: they are released when the work ends. ` +
        'Name another policy, or use a lock.',
    );
  }
  return call === 'tryAcquire' ? { ...options, waitMs: 0 } : options;
}

/**
 * Splits the options of a call for permits.
 * @returns how it wants to hold them, and its other options
 * @throws LockOptionsError
 */
export function permitsOf<Options extends object>(
  options: Options & LimitOptions,
): { hold: AskedHold; rest: Omit<Options, keyof PermitCount> } {
  if (!isOptions(options)) throw invalidOption('options', options, 'an object with a limit');
  const { limit, permits = 1, ...rest } = options;
  if (limit !== undefined || options.policy === undefined) checkOption('@Limited', 'limit', limit);
  checkOption('@Limited', 'permits', permits);
  if (limit !== undefined) checkPermits(permits, limit);
  const { holdMs, mode } = rest as HoldOptions & ModeOptions;
  if (holdMs !== undefined) {
    throw new LockOptionsError('Permits have no holdMs: they are released when the work ends. Use a lock.');
  }
  if (mode !== undefined) throw new LockOptionsError('Permits have no mode: for a shared lock, use acquire.');
  return { hold: { mode: 'permits', permits, limit }, rest };
}

/** @param policy the policy of the call, which may have the limit @throws LockOptionsError */
function holdOf(asked: AskedHold, policyName: string | undefined, policy: LockPolicy | undefined): Hold {
  if (asked.mode !== 'permits') return asked;
  const { mode, permits, limit = policy?.limit } = asked;
  if (limit === undefined) {
    throw new LockOptionsError(
      `The policy ${quoted(policyName!)} has no limit, the number of permits of the key: add it to the policy or to the call.`,
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
  checkOption('withLock', 'ttlMs', ttlMs);
  checkMargin(ttlMs, marginMs);
  checkBounds({ ttlMs }, bounds);
}

/** Checks the times of a call against the bounds of the store. @throws LockOptionsError */
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
    throw new LockOptionsError(
      `marginMs must be less than nine tenths of ttlMs: got marginMs ${marginMs} with ttlMs ${ttlMs}.`,
    );
  }
}

/** @throws LockOptionsError for a `maxHoldMs` that is shorter than `holdMs`, or for a shared lock with `holdMs` */
export function checkHold({ holdMs = 0, maxHoldMs = Infinity, mode }: HoldOptions & ModeOptions): void {
  if (mode === 'shared' && holdMs > 0) {
    throw new LockOptionsError(
      `A shared lock cannot be kept after its work: got holdMs ${holdMs}. Remove holdMs, or the mode.`,
    );
  }
  if (maxHoldMs < holdMs) {
    throw new LockOptionsError(`maxHoldMs must be at least holdMs: got maxHoldMs ${maxHoldMs} with holdMs ${holdMs}.`);
  }
}

/** Refuses `onTransaction: 'refuse'` if it would have no effect: the call would only look safe. @throws LockOptionsError */
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
  const { ttlMs, waitMs, watchdog, reentrant, onTransaction, onLost } = defaults;
  return { ttlMs, waitMs, watchdog, reentrant, onTransaction, onLost };
}

/** Refuses an option that this kind of call does not have, unless it is an option of other calls with the value `undefined`. */
function refuseForCall(options: WithLockOptions, name: keyof WithLockOptions, call: CallKind): void {
  const isLeftOut = options[name] === undefined && Object.hasOwn(CHECKS.withLock, name);
  if (Object.hasOwn(options, name) && !isLeftOut)
    refuseUnknown({ [name]: options[name] }, Object.keys(CHECKS[call]), OPTION_HINTS);
}
