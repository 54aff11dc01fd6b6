import { performance } from 'node:perf_hooks';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import { Clock } from '../../lib/core/time/clock.js';
import { ServerClock } from '../../lib/core/time/server-clock.js';
import { randomOf } from '../support/random.js';

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

/** The time that passes by the clock while `happen` runs. */
function elapsed({ now }: Clock, happen: () => void): number {
  const before = now();
  happen();
  return now() - before;
}

describe('Clock', () => {
  it('the clock counts a jump of the wall clock ahead as time that passed [G10]', () => {
    const clock = new Clock();
    pass(100);
    expect(elapsed(clock, () => (wallMs += 3_600_000))).toBe(3_600_000);
  });

  it('the clock is not moved by a wall clock that is set back [G11]', () => {
    const clock = new Clock();
    expect(elapsed(clock, () => (wallMs -= 3_600_000))).toBe(0);
    expect(elapsed(clock, () => pass(40))).toBe(40);
  });

  it('counts each suspend once and in full, even after the wall clock was set back', () => {
    const clock = new Clock();
    elapsed(clock, () => (wallMs -= 90));
    expect(elapsed(clock, () => (wallMs += 150))).toBe(150);
    const sleepAndWork = () => {
      wallMs += 2_000;
      clock.now();
      pass(30);
    };
    expect(elapsed(clock, () => [1, 2, 3].forEach(sleepAndWork))).toBe(3 * 2_030);
  });
});

describe('the clock of a server', () => {
  const AHEAD_US = 1_700_000_000_000_000;
  /** The time of a server whose clock runs faster or slower by this many millionths. */
  const timeAt = (ms: number, ppm = 0, aheadUs = AHEAD_US) => Math.round(aheadUs + ms * 1_000 * (1 + ppm / 1e6));

  it.each([0, 100, -100])(
    'is known to within half of the best round trip, wherever on the way the server has read it (drift %i ppm)',
    (ppm) => {
      const random = randomOf(7);
      const clock = new ServerClock();
      let now = 0;
      for (let answer = 0; answer < 10_000; answer++) {
        const [there, back] = [0.02 + random() ** 4 * 20, 0.02 + random() ** 4 * 20]; // in milliseconds
        clock.learn(timeAt(now + there, ppm), now, now + there + back);
        now += there + back + random() * 1_000;
        expect(Math.abs(clock.at(now)! - timeAt(now, ppm))).toBeLessThanOrEqual(clock.errorUs! + 1_000 * 0.2 + 2);
      }
      expect(clock.errorUs).toBeLessThan(1_000); // the round trips take up to 40 ms
      expect(clock.monotonicAt(clock.at(now)!)).toBeCloseTo(now, 2);
    },
  );

  it.each([-10_000_000, 10_000_000])('is learned again from the next answer after it was set by %i µs', (us) => {
    const clock = new ServerClock();
    expect([clock.at(5), clock.errorUs]).toEqual([undefined, undefined]);
    for (const now of [0, 10, 20]) clock.learn(timeAt(now + 0.1), now, now + 0.2);
    clock.learn(timeAt(30.5, 0, AHEAD_US + us), 30, 31);
    expect(clock.at(31)).toBe(timeAt(31, 0, AHEAD_US + us));
    expect(clock.errorUs).toBe(500);
  });
});
