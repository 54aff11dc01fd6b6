import { performance } from 'node:perf_hooks';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Clock, monotonic } from '../../lib/core/time/clock.js';

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
  it('counts what the monotonic clock counts', () => {
    expect(elapsed(new Clock(), () => pass(250))).toBe(250);
  });

  it('counts the time of a suspend, in which only the wall clock ran', () => {
    const clock = new Clock();
    expect(elapsed(clock, () => (wallMs += 60_000))).toBe(60_000);
    expect(elapsed(clock, () => pass(10))).toBe(10);
  });

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

  it('counts a suspend that comes after the wall clock was set back', () => {
    const clock = new Clock();
    elapsed(clock, () => (wallMs -= 3_600_000));
    expect(elapsed(clock, () => (wallMs += 5_000))).toBe(5_000);
  });

  it('counts a suspend in full that comes after the wall clock was set back a little', () => {
    const clock = new Clock();
    elapsed(clock, () => (wallMs -= 90));
    expect(elapsed(clock, () => (wallMs += 150))).toBe(150);
  });

  it('counts several suspends, each once', () => {
    const clock = new Clock();
    const sleepAndWork = () => {
      wallMs += 2_000;
      clock.now();
      pass(30);
    };
    expect(elapsed(clock, () => [1, 2, 3].forEach(sleepAndWork))).toBe(3 * 2_030);
  });

  it('counts what a wall clock gains in small steps, before it is as much as the allowance for drift', () => {
    const clock = new Clock();
    const gained = elapsed(clock, () => {
      for (let step = 0; step < 1_000; step++) {
        wallMs += 1;
        clock.now();
      }
    });
    expect(gained).toBeGreaterThan(1_000 - 150);
    expect(gained).toBeLessThanOrEqual(1_000);
  });

  it('never runs backwards', () => {
    const clock = new Clock();
    let last = clock.now();
    const backwards: number[] = [];
    for (const step of [0, 500, -500, 90, -90, 10_000, -20_000, 1, 0, 101, -101]) {
      wallMs += step;
      monotonicMs += 1;
      const now = clock.now();
      if (now < last) backwards.push(step);
      last = now;
    }
    expect(backwards).toEqual([]);
  });
});

describe('the clock of locks in memory', () => {
  it('counts what the monotonic clock counts, whatever the wall clock does', () => {
    const clock = { now: monotonic } as Clock;
    expect(elapsed(clock, () => pass(250))).toBe(250);
    expect(elapsed(clock, () => (wallMs += 3_600_000))).toBe(0);
    expect(elapsed(clock, () => (wallMs -= 7_200_000))).toBe(0);
  });
});
