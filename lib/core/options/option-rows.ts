import {
  checked,
  count,
  DAY_MS,
  fits,
  isFunction,
  isRecord,
  isText,
  MAX_TIMER_MS,
  milliseconds,
  oneOf,
  refuseUnknown,
  type Check,
} from './checks.js';
import { UNSAFE } from '../../api/printable.js';

const CALLS = ['withLock', 'acquire', 'tryAcquire'] as const;
const METHODS = ['@Locked', '@Limited'] as const;
const ALL = ['service', 'policy', ...CALLS, ...METHODS] as const;
const PLACES = [...ALL, 'leader', '@LeaderOnly', 'list', 'forRoot'] as const;

/** Where options can be given: with a registration, in a policy, with a call of `LockService`, with a decorator. */
export type Place = (typeof PLACES)[number];
/** The method of the service that is called. */
export type CallKind = (typeof CALLS)[number];
/** The decorators of methods that run under a lock, or under permits. */
export type MethodKind = (typeof METHODS)[number];

/** One option: where it can be given, its check and its default. */
interface Row {
  readonly name: string;
  readonly in: readonly Place[];
  readonly check: Check;
  readonly byDefault?: unknown;
}

/** The store keeps all holders of permits in one value, which each call for the key reads. */
const MAX_PERMITS = 1_000;
const MAX_LABEL = 100;
const MAX_NOTE = 100;
/** The maximum length of a key. */
const MAX_MATCH_BYTES = 1024;

const flag = oneOf(true, false);
const ttl = milliseconds(20, DAY_MS);
const wait = milliseconds(0, MAX_TIMER_MS);
const permits = count(1, MAX_PERMITS);
const label = fits((value) => isText(value) && value.length <= MAX_LABEL, `a string of 1 to ${MAX_LABEL} characters`);
const note = fits(
  (value) => isText(value) && value.length <= MAX_NOTE && value.search(UNSAFE) === -1,
  `a string of 1 to ${MAX_NOTE} printable characters`,
);
const scope = fits((value) => value === null || isText(value), 'a non-empty string, or null for none');
const registration = fits(isText, 'the name of a registration');
const refusal = fits(
  (value) => ['throw', 'skip'].includes(value as string) || isFunction(value),
  '"throw", "skip" or a function',
);
const policies = fits(isRecord, 'an object with a policy for each name, like { slow: { ttlMs: 120_000 } }');
const telemetry = fits(
  (value) => isRecord(value) && isFunction(value.open),
  'what otelLocks() of nest-redis-lock/otel returns',
);
const match = fits(
  (value) => isText(value) && Buffer.byteLength(value) <= MAX_MATCH_BYTES,
  `a string of 1 to ${MAX_MATCH_BYTES} bytes`,
);

const ROWS: readonly Row[] = [
  { name: 'ttlMs', in: ALL, check: ttl, byDefault: 30_000 },
  { name: 'ttlMs', in: ['leader', '@LeaderOnly'], check: ttl, byDefault: 15_000 },
  { name: 'waitMs', in: ['service', 'policy', 'withLock', 'acquire', ...METHODS], check: wait, byDefault: 10_000 },
  { name: 'watchdog', in: ALL, check: flag, byDefault: true },
  { name: 'reentrant', in: ALL, check: flag, byDefault: true },
  { name: 'onTransaction', in: ALL, check: oneOf('warn', 'refuse', 'allow'), byDefault: 'warn' },
  { name: 'onLost', in: ['service', 'withLock', ...METHODS], check: oneOf('reject', 'ignore'), byDefault: 'reject' },
  { name: 'awaitRelease', in: ['policy', 'withLock', ...METHODS], check: flag },
  { name: 'holdMs', in: ['policy', ...CALLS, '@Locked'], check: milliseconds(0, DAY_MS) },
  { name: 'maxHoldMs', in: ['policy', ...CALLS, ...METHODS], check: milliseconds(1, MAX_TIMER_MS) },
  { name: 'mode', in: [...CALLS, '@Locked'], check: oneOf('exclusive', 'shared') },
  { name: 'label', in: [...CALLS, ...METHODS], check: label },
  { name: 'note', in: [...CALLS, ...METHODS], check: note },
  { name: 'scope', in: [...CALLS, ...METHODS], check: scope },
  { name: 'policy', in: [...CALLS, ...METHODS], check: fits(isText, 'the name of a policy') },
  { name: 'limit', in: ['policy', '@Limited'], check: permits },
  { name: 'permits', in: ['@Limited'], check: permits },
  { name: 'onContended', in: METHODS, check: refusal },
  { name: 'onUnavailable', in: METHODS, check: refusal },
  { name: 'registration', in: [...METHODS, '@LeaderOnly'], check: registration },
  { name: 'signal', in: CALLS, check: fits((value) => value instanceof AbortSignal, 'an AbortSignal') },

  { name: 'marginMs', in: ['service'], check: milliseconds(0, DAY_MS), byDefault: 0 },
  { name: 'fair', in: ['service'], check: flag, byDefault: false },
  { name: 'maxWaiters', in: ['service'], check: count(1, 1_000_000), byDefault: 10_000 },
  { name: 'cohortMs', in: ['service'], check: milliseconds(0, 60_000), byDefault: 100 },
  { name: 'lockOrder', in: ['service'], check: oneOf('off', 'warn', 'throw'), byDefault: 'off' },
  { name: 'scope', in: ['service'], check: fits(isFunction, 'a function that returns a string, or null for none') },
  { name: 'policies', in: ['service'], check: policies },
  { name: 'insideTransaction', in: ['service'], check: fits(isFunction, 'a function that returns true or false') },
  { name: 'telemetry', in: ['service'], check: telemetry },
  { name: 'lazyConnect', in: ['service'], check: flag, byDefault: false },
  { name: 'connectTimeoutMs', in: ['service'], check: milliseconds(10, 600_000), byDefault: 5_000 },
  { name: 'shutdownTimeoutMs', in: ['service'], check: milliseconds(0, 600_000), byDefault: 10_000 },
  { name: 'isGlobal', in: ['forRoot'], check: flag, byDefault: true },
  { name: 'name', in: ['forRoot'], check: registration },

  { name: 'match', in: ['list'], check: match, byDefault: '*' },
  { name: 'limit', in: ['list'], check: count(1, 10_000), byDefault: 500 },
  { name: 'budgetMs', in: ['list'], check: milliseconds(1, 60_000), byDefault: 1_000 },
];

/** The checks of all options that can be given at a place, by their names. */
export const CHECKS = Object.fromEntries(
  PLACES.map((place) => [place, Object.fromEntries(rowsOf(place).map(({ name, check }) => [name, check]))]),
) as Readonly<Record<Place, Readonly<Record<string, Check>>>>;

/** @throws LockOptionsError for a value out of bounds */
export function checkOption(place: Place, name: string, value: unknown): void {
  CHECKS[place][name]!(name, value);
}

/** @throws LockOptionsError for an unknown name, or a value out of bounds */
export function checkOptions(place: Place, options: object): void {
  refuseUnknown(options, Object.keys(CHECKS[place]));
  checked(options, CHECKS[place]);
}

/** Checks the options of a place, ignores others, and adds the defaults. @throws LockOptionsError for a value out of bounds */
export function withDefaults<Options extends object>(place: Place, options: Options): Required<Options> {
  const defaults: object = Object.fromEntries(rowsOf(place).map(({ name, byDefault }) => [name, byDefault]));
  return { ...defaults, ...checked(options, CHECKS[place]) } as Required<Options>;
}

function rowsOf(place: Place): readonly Row[] {
  return ROWS.filter((row) => row.in.includes(place));
}
