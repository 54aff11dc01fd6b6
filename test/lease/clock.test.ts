import { performance } from 'node:perf_hooks';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Clock } from '../../lib/core/time/clock.js';

let monotonicMs: number;
let wallMs: number;
beforeEach(() => {
  monotonicMs = 1_000;
  wallMs = 1_700_000_000_000;
  vi.spyOn(performance, 'now').mockImplementation(() => monotonicMs);
  vi.spyOn(Date, 'now').mockImplementation(() => wallMs);
});
afterEach(() => {
  vi.restoreAllMocks();
});

function pass(ms: number): void {
  monotonicMs += ms;
  wallMs += ms;
}

/** What the clock says has passed while `happen` happened. */
function elapsed({ now }: Clock, happen: () => void): number {
  const before = now();
  happen();
  return now() - before;
}

describe('Clock', () => {
  it('the clock counts a wall clock that is set ahead as time that passed [G10]', () => {
    const clock = new Clock();
    pass(100);
    expect(elapsed(clock, () => (wallMs += 3_600_000))).toBe(3_600_000);
  });

  it('the clock is not moved by a wall clock that is set back [G11]', () => {
    const clock = new Clock();
    expect(elapsed(clock, () => (wallMs -= 3_600_000))).toBe(0);
    expect(elapsed(clock, () => pass(40))).toBe(40);
  });
});
