import { describe, expect, it, vi } from 'vitest';
import { inTime } from '../../lib/in-time.js';

const LONG_MS = 60_000;

describe('what is waited for in time', () => {
  it('is the answer, or its failure, and leaves no timer behind', async () => {
    vi.useFakeTimers();
    try {
      const late = vi.fn<() => string>(() => 'late');
      expect(await inTime(Promise.resolve('answer'), LONG_MS, late)).toBe('answer');
      expect(await inTime('at once', LONG_MS, late)).toBe('at once');
      await expect(inTime(Promise.reject(new RangeError('of it')), LONG_MS, late)).rejects.toThrow(RangeError);
      expect(vi.getTimerCount()).toBe(0);
      expect(late).not.toHaveBeenCalled();
    } finally {
      vi.useRealTimers();
    }
  });

  it('is what the caller makes of it when the answer is late, whose failure disturbs nobody', async () => {
    let fail!: (reason: Error) => void;
    const answer = new Promise<string>((_, reject) => {
      fail = reject;
    });
    const refused = new Error('no answer');
    const refuse = () => {
      throw refused;
    };
    expect(await inTime(answer, 1, () => 'late')).toBe('late');
    await expect(inTime(answer, 1, refuse)).rejects.toBe(refused);
    fail(new Error('of nobody')); // unhandled it would fail the test run
  });
});
