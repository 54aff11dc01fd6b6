import { describe, expect, it } from 'vitest';
import { LockContendedError, LockUnavailableError } from '../../lib/api/errors.js';
import { acquireAll } from '../../lib/core/service/acquire-all.js';
import type { LockHandle } from '../../lib/core/lease/lock-handle.js';

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
  const tryAcquire = (key: string) => {
    calls.push(`try ${key}`);
    return refuse[key] ? Promise.reject(refuse[key]) : Promise.resolve(lockOf(key));
  };
  const tryAgain = (key: string) => {
    calls.push(`again ${key}`);
    return Promise.resolve(lockOf(key));
  };
  const wait = (key: string) => {
    calls.push(`wait ${key}`);
    return Promise.resolve(lockOf(key));
  };
  return { calls, tryAcquire, later: { wait, tryAgain } };
}

describe('the acquisition of several locks', () => {
  it('waits for none when the store cannot be asked for another, whichever comes first', async () => {
    for (const keys of [
      ['a', 'held', 'z'],
      ['a', 'z', 'held'],
    ]) {
      const down = new LockUnavailableError('down', 'z');
      const { calls, tryAcquire, later } = locksThat({ held: new LockContendedError('held', 0), z: down });
      await expect(acquireAll(keys, tryAcquire, later)).rejects.toBe(down);
      expect(calls.slice(3)).toEqual(['release a']);
    }
  });

  it('releases what was granted although one of the others threw at once', async () => {
    const { calls, tryAcquire } = locksThat({});
    const bug = new Error('threw');
    const throwing = (key: string) => {
      if (key === 'b') throw bug;
      return tryAcquire(key);
    };
    await expect(acquireAll(['a', 'b', 'c'], throwing)).rejects.toBe(bug);
    expect(calls.filter((call) => call.startsWith('release')).sort()).toEqual(['release a', 'release c']);
  });
});
