import { deepStrictEqual, ok } from 'node:assert/strict';
import { inspect } from 'node:util';
import { driftMs, monotonic } from '../core/time/clock.js';

export function equal(actual: unknown, expected: unknown, what: string): void {
  deepStrictEqual(actual, expected, `${what} should be ${shown(expected)}, but is ${shown(actual)}`);
}

/** Compares only the expected properties; the object may have more. */
export function matches(actual: object | undefined, expected: object, what: string): void {
  const names = Object.keys(expected);
  const picked = Object.fromEntries(Object.entries(actual ?? {}).filter(([name]) => names.includes(name)));
  const message = `${what} should have ${shown(expected)}, but is ${shown(actual)}`;
  deepStrictEqual(picked, { ...expected }, message);
}

export function between(actual: number | undefined, least: number, most: number, what: string): void {
  const isWithin = actual !== undefined && actual >= least && actual <= most;
  ok(isWithin, `${what} should be from ${least} to ${most}, but is ${actual}`);
}

/** Checks that nobody else got the lock in this time. It allows for the drift between two clocks, as leases do. */
export function notBefore(ms: number, since: number): void {
  const elapsed = monotonic() - since;
  ok(elapsed >= ms - driftMs(ms), `the lock should be held for ${ms} ms, but was granted again after ${elapsed} ms`);
}

export function shown(value: unknown): string {
  return inspect(value, { depth: 4, breakLength: Infinity });
}
