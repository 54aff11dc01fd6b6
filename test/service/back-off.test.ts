import { describe, expect, it } from 'vitest';
import { monotonic } from '../../lib/core/time/clock.js';
import { BackOff } from '../../lib/core/waiting/bid.js';

const LONG_MS = 60_000;
const many = <T>(make: () => T): T[] => Array.from({ length: 500 }, make);

describe('BackOff', () => {
  it('grows from some milliseconds to a quarter of a second, also where the key has no ttl, and never goes far past the end of a lease', () => {
    const backOff = new BackOff();
    const sleeps = many(() => backOff.next(Infinity, 1));
    expect(sleeps[0]).toBeLessThanOrEqual(12);
    expect(Math.max(...sleeps)).toBeLessThanOrEqual(375);
    expect(Math.min(...sleeps.slice(20))).toBeGreaterThanOrEqual(125);
    expect(Math.max(...many(() => backOff.next(5, 1)))).toBe(6);
  });

  it('waits some round trips after a split vote, by chance', () => {
    const sleeps = many(() => new BackOff().next(undefined, 4));
    expect(Math.min(...sleeps)).toBeGreaterThanOrEqual(4);
    expect(Math.max(...sleeps)).toBeLessThanOrEqual(36);
    expect(new Set(sleeps).size).toBeGreaterThan(400);
  });

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
