import { describe, expect, it } from 'vitest';
import { monotonic } from '../../lib/core/time/clock.js';
import { BackOff } from '../../lib/core/waiting/bid.js';

const LONG_MS = 60_000;
const many = <T>(make: () => T): T[] => Array.from({ length: 500 }, make);

describe('BackOff', () => {
  it('comes due with all others of its process once it has waited for some time, where one statement asks for all of them [G787]', () => {
    const dues = many(() => {
      const backOff = new BackOff(25);
      const pauses = Array.from({ length: 10 }, () => backOff.next(LONG_MS, 1));
      expect(pauses[0]).toBeLessThanOrEqual(3);
      expect(Math.max(...pauses)).toBeLessThanOrEqual(37.5);
      return monotonic() + backOff.next(LONG_MS, 1);
    });
    // The clock goes on a little between two readings of it.
    for (const dueAt of dues) expect(dueAt / 25).toBeCloseTo(Math.round(dueAt / 25), 1);
  });
});
