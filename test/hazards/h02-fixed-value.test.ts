import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { clientOf, redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';

describe('H2: every client stores the same value', () => {
  it('a naive lock with a fixed value is deleted by a holder whose lease has ended, and two others hold it at once', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    const lock = async (ttlMs: number) => (await redis.set('lock', 'locked', 'PX', ttlMs, 'NX')) === 'OK';
    const unlock = () => redis.del('lock');

    expect(await lock(100)).toBe(true); // A
    await until(() => lock(60_000), { what: "A's lease has ended, and B has the lock" });
    expect(await unlock()).toBe(1); // A is done at last
    expect(await lock(60_000)).toBe(true); // C, while B is still at work
  });

  it("this library releases only the caller's own lock [G149]", async () => {
    const server = await redisServer();
    const [a, b, c] = await Promise.all([1, 2, 3].map(() => openLocks({ redis: server.url })));

    const lockOfA = await a!.acquire('key', { ttlMs: 700, watchdog: false });
    const lockOfB = await b!.acquire('key');
    expect(lockOfB.owner).not.toBe(lockOfA.owner);
    expect(await lockOfA.release()).toBe(false);
    expect(await ownerOn(server, 'key')).toBe(lockOfB.owner);
    expect(await c!.tryAcquire('key')).toBeNull();
    expect(await lockOfB.release()).toBe(true);
  });
});
