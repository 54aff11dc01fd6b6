import { describe, expect, it } from 'vitest';
import { LockContendedError, LockUnavailableError } from 'nest-redis-lock';
import { acquireAll } from '../../lib/core/service/acquire-all.js';
import type { LockHandle } from '../../lib/core/lease/lock-handle.js';
import type { WaitRequest } from '../../lib/core/waiting/waiter.js';

/** Locks of which some are refused, and the calls for them in order. */
function locksThat(refuse: Record<string, Error>) {
  const calls: string[] = [];
  const lockOf = (key: string) => {
    const release = () => {
      calls.push(`release ${key}`);
      return Promise.resolve(true);
    };
    return { key, lease: { isAlive: true }, release } as unknown as LockHandle;
  };
  const acquire = (key: string, { isProbe, since }: WaitRequest) => {
    const how = isProbe !== true ? 'wait' : since === undefined ? 'try' : 'again';
    calls.push(`${how} ${key}`);
    return how === 'try' && refuse[key] ? Promise.reject(refuse[key]) : Promise.resolve(lockOf(key));
  };
  return { calls, acquire };
}

const REQUEST: WaitRequest = { ttlMs: 30_000, waitMs: 10_000, watchdog: true };

describe('the acquisition of several locks', () => {
  it('waits for none when the store cannot be asked for another, whichever comes first', async () => {
    for (const keys of [
      ['a', 'held', 'z'],
      ['a', 'z', 'held'],
    ]) {
      const down = new LockUnavailableError('down', 'z');
      const { calls, acquire } = locksThat({ held: new LockContendedError('held', 0), z: down });
      await expect(acquireAll(keys, REQUEST, 0, acquire)).rejects.toBe(down);
      expect(calls.slice(3)).toEqual(['release a']);
    }
  });

  it('releases what was granted although one of the others threw at once', async () => {
    const { calls, acquire } = locksThat({});
    const bug = new Error('threw');
    const throwing: typeof acquire = (key, request) => {
      if (key === 'b') throw bug;
      return acquire(key, request);
    };
    await expect(acquireAll(['a', 'b', 'c'], REQUEST, 0, throwing)).rejects.toBe(bug);
    expect(calls.filter((call) => call.startsWith('release')).sort()).toEqual(['release a', 'release c']);
  });
});
