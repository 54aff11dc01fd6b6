import { performance } from 'node:perf_hooks';

/**
 * Elapsed time, in milliseconds, for locks in memory. No Redis runs on while the machine is suspended, and tests set the
 * wall clock as they like.
 */
export const monotonic = (): number => performance.now();

/** The date, in milliseconds since 1970. Taken on load: test frameworks replace the global `Date` by one that they set. */
export const machineDate: () => number = Date.now;

/** How long it is until a time of the monotonic clock, in whole milliseconds; 0 if that has passed. */
export function leftMs(until = 0): number {
  return until === 0 ? 0 : Math.max(0, Math.ceil(until - monotonic()));
}

/** A wall clock that gained more than this on the monotonic one was set, or slept: below it is rounding and slewing. */
const JUMP_MS = 100;

/**
 * Elapsed time, in milliseconds, that never runs slower than Redis does. Linux stops the monotonic clock while the
 * machine is suspended, so what the wall clock gains on it between two readings counts as elapsed too. A wall clock
 * that is set ahead then costs a lease, never safety; one that is set back changes nothing, unless the machine slept since the
 * last reading: neither clock shows then that it did.
 */
export class Clock {
  #skippedMs = 0;
  #lead = Date.now() - monotonic();

  readonly now = (): number => {
    const elapsed = monotonic();
    const lead = Date.now() - elapsed;
    const gained = lead - this.#lead;
    if (gained > JUMP_MS) this.#skippedMs += gained;
    if (gained > JUMP_MS || gained < 0) this.#lead = lead;
    return elapsed + this.#skippedMs;
  };
}

/** How far two clocks may drift apart in this time, in milliseconds: 1 % + 2 ms. */
export function driftMs(ms: number): number {
  return ms * 0.01 + 2;
}

/** How long a lease may be relied on, in milliseconds after its command was sent. */
export function validityMs(ttlMs: number, marginMs: number): number {
  return ttlMs - driftMs(ttlMs) - marginMs;
}
