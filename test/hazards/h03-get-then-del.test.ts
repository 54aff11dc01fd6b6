import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { tryLock } from '../support/naive.js';
import { clientOf, proxyTo, redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';

describe('H3: the release reads its own value, and then deletes', () => {
  it('a naive lock whose release pauses between GET and DEL deletes the lock of the next holder', async () => {
    const server = await redisServer();
    const [a, b, c] = [clientOf(server), clientOf(server), clientOf(server)];

    expect(await tryLock(a, 'lock', 'A', 700)).toBe(true);
    const isMine = (await a.get('lock')) === 'A';
    await until(() => tryLock(b, 'lock', 'B', 60_000), { what: "A's lease has ended, and B has the lock" });
    expect(isMine).toBe(true);
    expect(await a.del('lock')).toBe(1);
    expect(await tryLock(c, 'lock', 'C', 60_000)).toBe(true); // while B is still at work
  });

  it('this library compares and deletes in one step, so that a delayed release removes nothing [G150]', async () => {
    const server = await redisServer();
    const wayOfA = await proxyTo(server);
    const a = await openLocks({ redis: wayOfA.url });
    const b = await openLocks({ redis: server.url });

    const lockOfA = await a.acquire('key', { ttlMs: 800 });
    wayOfA.hold();
    const releasing = lockOfA.release(); // sent while A is the holder
    const lockOfB = await b.acquire('key');
    wayOfA.release();
    expect(await releasing).toBe(false);
    expect(await ownerOn(server, 'key')).toBe(lockOfB.owner);
    expect(await lockOfB.release()).toBe(true);
  });
});
