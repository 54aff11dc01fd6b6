import { deepStrictEqual, ok } from 'node:assert/strict';
import { inspect } from 'node:util';
import { driftMs, monotonic } from '../core/time/clock.js';

export function equal(actual: unknown, expected: unknown, what: string): void {
  deepStrictEqual(actual, expected, `${what} should be ${shown(expected)}, and is ${shown(actual)}`);
}

/** Compares the properties that are expected; there may be others. */
export function matches(actual: object | undefined, expected: object, what: string): void {
  const names = Object.keys(expected);
  const picked = Object.fromEntries(Object.entries(actual ?? {}).filter(([name]) => names.includes(name)));
  const message = `${what} should have ${shown(expected)}, and is ${shown(actual)}`;
  deepStrictEqual(picked, { ...expected }, message);
}

export function between(actual: number | undefined, least: number, most: number, what: string): void {
  const isWithin = actual !== undefined && actual >= least && actual <= most;
  ok(isWithin, `${what} should be from ${least} to ${most}, and is ${actual}`);
}

/** Nobody else had the lock in this time, except for as much as two clocks may differ, which leases allow for. */
export function notBefore(ms: number, since: number): void {
  const elapsed = monotonic() - since;
  ok(elapsed >= ms - driftMs(ms), `the lock should stand for ${ms} ms, and was granted again after ${elapsed} ms`);
}

export function shown(value: unknown): string {
  return inspect(value, { depth: 4, breakLength: Infinity });
}
