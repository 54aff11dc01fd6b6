import { performance } from 'node:perf_hooks';

/** Elapsed time, in milliseconds. It stops while the machine is suspended, and does not change when the wall clock is set. */
export const monotonic = (): number => performance.now();

/** The date, in milliseconds since 1970. Taken on load, because test frameworks replace the global `Date`. */
export const machineDate: () => number = Date.now;

/** How long it is until a time of the monotonic clock, in whole milliseconds; 0 if the time has passed. */
export function leftMs(until = 0): number {
  return until === 0 ? 0 : Math.max(0, Math.ceil(until - monotonic()));
}

/** If the wall clock gains more than this on the monotonic clock, it was set, or the machine slept. Smaller gains come from rounding and slewing. */
const JUMP_MS = 100;

/**
 * Elapsed time, in milliseconds, that never runs slower than the clock of a server. Linux stops the monotonic clock while the machine is
 * suspended, so the time that the wall clock gains on it counts as elapsed, too. If the wall clock is set ahead, leases end early, which is
 * safe. If it is set back, nothing changes, unless the machine also slept since the last reading: then neither clock shows the sleep.
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

/** How far two clocks can drift apart in this time, in milliseconds: 1 % + 2 ms. */
export function driftMs(ms: number): number {
  return ms * 0.01 + 2;
}

/** How long a lease is valid, in milliseconds after its command was sent. */
export function validityMs(ttlMs: number, marginMs: number): number {
  return ttlMs - driftMs(ttlMs) - marginMs;
}
