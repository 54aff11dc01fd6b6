import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';

/** Checks the value of an option. @throws LockOptionsError that says what is expected */
export type Check = (name: string, value: unknown) => void;

export const DAY_MS = 86_400_000;
/** The longest timer, in milliseconds: `setTimeout` fires at once for a longer one. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

export function milliseconds(min: number, max: number): Check {
  return count(min, max, 'a whole number of milliseconds');
}

export function count(min: number, max: number, what = 'a whole number'): Check {
  const isFit = (value: unknown) => Number.isInteger(value) && (value as number) >= min && (value as number) <= max;
  return fits(isFit, `${what} from ${min} to ${max}`);
}

export function oneOf(...values: readonly unknown[]): Check {
  return fits((value) => values.includes(value), values.map((each) => JSON.stringify(each)).join(' or '));
}

/** @param expected for messages */
export function fits(isFit: (value: unknown) => boolean, expected: string): Check {
  return (name, value) => {
    if (!isFit(value)) throw invalidOption(name, value, expected);
  };
}

export function isText(value: unknown): value is string {
  return typeof value === 'string' && value !== '';
}

export function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

/** Whether it is an object with options. */
export function isOptions<T>(value: T): value is T & Record<string, unknown> {
  return isRecord(value) && !(value instanceof Promise);
}

export function isFunction(value: unknown): boolean {
  return typeof value === 'function';
}

/** Whether a value is a class, which cannot be called without `new`. */
export function isClass(value: unknown): boolean {
  return isFunction(value) && /^class\b/.test(String(value));
}

/** Checks the options that have a check, and returns the given ones. @param place a prefix of each name in messages */
export function checked(options: object, checks: Readonly<Record<string, Check>>, place = ''): object {
  const result: Record<string, unknown> = {};
  for (const name in checks) {
    const value = (options as Record<string, unknown>)[name];
    if (value === undefined) continue;
    checks[name]!(place + name, value);
    result[name] = value;
  }
  return result;
}

/**
 * @param meant advice for unknown names
 * @param unlisted known names that the error does not list
 * @throws LockOptionsError if it is not an object, or for the first unknown name
 */
export function refuseUnknown(
  options: object,
  known: readonly string[],
  meant: Readonly<Record<string, string>> = {},
  unlisted: readonly string[] = [],
): void {
  if (!isOptions(options)) throw invalidOption('options', options, 'an object');
  const unknown = Object.keys(options).find((name) => !known.includes(name));
  if (unknown === undefined) return;
  const like = unknown.toLowerCase();
  const listed = known.filter((name) => !unlisted.includes(name));
  const near = listed.find((name) => [like, `${like}ms`].includes(name.toLowerCase()));
  const hint =
    near === undefined ? Object.entries(meant).find(([name]) => name === unknown)?.[1] : `Did you mean ${near}?`;
  throw new LockOptionsError(
    `There is no option ${quoted(unknown)}: expected ${listed.join(', ')}.${hint === undefined ? '' : ` ${hint}`}`,
  );
}

export function invalidOption(name: string, got: unknown, expected: string): LockOptionsError {
  return new LockOptionsError(`${name} must be ${expected}: got ${described(got)}.`);
}

/** A short form of a wrong value. For an object it is only the kind, since the object may hold credentials. */
export function described(value: unknown): string {
  if (typeof value === 'string') return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}…` : value);
  if (Array.isArray(value)) return 'an array';
  if (value instanceof Promise) return 'a Promise, which is not awaited';
  if (typeof value === 'object' && value !== null) return 'an object';
  return typeof value === 'function' ? 'a function' : String(value);
}
