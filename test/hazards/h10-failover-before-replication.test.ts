import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { ownersOf, redisServers } from '../support/stage.js';

describe('H10: the primary fails before it has replicated the lock', () => {
  it('this library, as a Redlock over independent masters, has one holder when a master fails for good [G160]', async () => {
    const masters = await redisServers(3);
    const options = { redlock: masters.map(({ url }) => url), commandTimeoutMs: 10_000 };
    const [a, b] = [await openLocks(options), await openLocks(options)];
    const lockOfA = await a.acquire('key');
    const hasIt = async () => (await ownersOf(masters, 'key')).every((owner) => owner === lockOfA.owner);
    await until(hasIt, { what: 'all masters have it' }); // two would do for A
    await masters[0]!.kill();
    expect(await b.tryAcquire('key')).toBeNull();
    await lockOfA.extend();
    expect(lockOfA.isHeld).toBe(true);
    expect(await lockOfA.release()).toBe(true);
    expect(await b.acquire('key')).toMatchObject({ isHeld: true });
  });
});
