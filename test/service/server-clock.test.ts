import { describe, expect, it } from 'vitest';
import { ServerClock } from '../../lib/core/time/server-clock.js';
import { randomOf } from '../support/random.js';

const AHEAD_US = 1_700_000_000_000_000;

/** A server whose clock is ahead of the monotonic one, and runs faster or slower by so many millionths. */
const server = (ppm = 0, aheadUs = AHEAD_US) => {
  return (monotonicMs: number) => Math.round(aheadUs + monotonicMs * 1_000 * (1 + ppm / 1e6));
};

describe('the clock of a server', () => {
  it('is not known before the first answer', () => {
    const clock = new ServerClock();
    expect([clock.at(5), clock.monotonicAt(AHEAD_US), clock.errorUs]).toEqual([undefined, undefined, undefined]);
  });

  it.each([0, 100, -100])(
    'is known to half of the best round trip, wherever on the way the server has read it (drift %i ppm)',
    (ppm) => {
      const random = randomOf(7);
      const clock = new ServerClock();
      const timeAt = server(ppm);
      let [now, best] = [0, Infinity];
      for (let answer = 0; answer < 10_000; answer++) {
        const [there, back] = [0.02 + random() ** 4 * 20, 0.02 + random() ** 4 * 20]; // in milliseconds
        clock.learn(timeAt(now + there), now, now + there + back);
        best = Math.min(best, there + back);
        now += there + back + random() * 1_000;
        expect(Math.abs(clock.at(now)! - timeAt(now))).toBeLessThanOrEqual(clock.errorUs! + 1_000 * 0.2 + 2);
      }
      expect(clock.errorUs).toBeLessThan(1_000); // the round trips take up to 40 ms
      expect(clock.errorUs).toBeGreaterThanOrEqual((best * 1_000) / 2 - 1);
      expect(clock.monotonicAt(clock.at(now)!)).toBeCloseTo(now, 2);
    },
  );

  it.each([-10_000_000, 10_000_000])('is learned anew from the next answer when it was set by %i µs', (us) => {
    const clock = new ServerClock();
    for (const now of [0, 10, 20]) clock.learn(server()(now + 0.1), now, now + 0.2);
    clock.learn(server(0, AHEAD_US + us)(30.5), 30, 31);
    expect(clock.at(31)).toBe(server(0, AHEAD_US + us)(31));
    expect(clock.errorUs).toBe(500);
  });

  it('stays as good as its best answer for a while, and grows worse by 200 ppm', () => {
    const clock = new ServerClock();
    clock.learn(server()(0.1), 0, 0.2);
    clock.learn(server()(5), 0.2, 10); // slow, so that it adds nothing
    expect(clock.errorUs).toBeCloseTo(100 + 9.8 * 0.2, 1);
  });
});
