import { Redis } from 'ioredis';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { inTime } from '../../lib/core/time/time-limit.js';
import { RedisServer } from '../support/redis-server.js';

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

  it('is the answer that came while this process was paused, although the time is over', async () => {
    const server = await RedisServer.start();
    onTestFinished(() => server.stop());
    const client = new Redis(server.url);
    onTestFinished(() => client.disconnect());
    await client.ping();
    const late = vi.fn<() => string>(() => 'late');
    const answer = inTime(client.ping(), 10, late);
    for (const end = performance.now() + 800; performance.now() < end;);
    expect(await answer).toBe('PONG');
    await new Promise((resolve) => setImmediate(resolve));
    expect(late).not.toHaveBeenCalled();
  });
});
