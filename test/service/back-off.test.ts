import { describe, expect, it } from 'vitest';
import { monotonic } from '../../lib/core/time/clock.js';
import { BackOff } from '../../lib/core/waiting/bid.js';

const LONG_MS = 60_000;
const many = <T>(make: () => T): T[] => Array.from({ length: 500 }, make);

describe('BackOff', () => {
  it('never sleeps past the end of the lease of the holder, but just past it', () => {
    const backOff = new BackOff();
    const sleeps = many(() => backOff.next(5, 1));
    expect(Math.max(...sleeps)).toBe(6);
  });

  it('grows from some milliseconds to a quarter of a second', () => {
    const backOff = new BackOff();
    const sleeps = many(() => backOff.next(LONG_MS, 1));
    expect(sleeps[0]).toBeLessThanOrEqual(12);
    expect(Math.max(...sleeps)).toBeGreaterThan(250);
    expect(Math.max(...sleeps)).toBeLessThanOrEqual(375);
    expect(Math.min(...sleeps.slice(20))).toBeGreaterThanOrEqual(125);
  });

  it('is jittered, so that processes do not ask at the same time', () => {
    expect(new Set(many(() => new BackOff().next(LONG_MS, 1))).size).toBeGreaterThan(400);
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

  it('does not ask all the time for a key that has no ttl at all', () => {
    const backOff = new BackOff();
    expect(Math.min(...many(() => backOff.next(Infinity, 1)).slice(20))).toBeGreaterThanOrEqual(125);
  });

  it('waits some round trips after a split vote, by chance', () => {
    const sleeps = many(() => new BackOff().next(undefined, 4));
    expect(Math.min(...sleeps)).toBeGreaterThanOrEqual(4);
    expect(Math.max(...sleeps)).toBeLessThanOrEqual(36);
    expect(Math.max(...sleeps)).toBeGreaterThan(20);
  });
});
