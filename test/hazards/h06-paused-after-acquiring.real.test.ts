import { describe, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { FencedStore } from './fenced-store.js';
import { tryLock } from '../support/naive.js';
import { clientOf, NaiveProcess, redisServer } from '../support/stage.js';

/** As long as the pause of the holder: far longer than a busy machine lets a process stand still before. */
const TTL_MS = 2_000;

describe('H6: the holder is paused, and writes when it wakes', () => {
  it('a naive lock lets a paused holder overwrite the work of the next one, even if it checks before each write', async () => {
    const server = await redisServer();
    const b = clientOf(server);
    const a = NaiveProcess.start(
      server,
      `await redis.set('lock', 'A', 'PX', 60_000, 'NX');
       if ((await redis.get('lock')) === 'A') {
         say('mine');
         await told(); // stopped here
         await redis.set('stock', 'as A saw it');
         say('written');
       }`,
    );
    await a.says('mine');
    a.pause();
    await server.command('PEXPIRE', 'lock', 1); // all but the end of the ttl passes
    await until(() => tryLock(b, 'lock', 'B', 60_000), { what: 'B has the lock' });
    await b.set('stock', 'as B sold it');
    a.tell();
    a.resume();
    await a.says('written');
    expect(await b.get('lock')).toBe('B');
    expect(await b.get('stock')).toBe('as A saw it');
  });

  it('this library reports the loss in the first line that a paused holder runs, and the resource refuses its late write [G154]', async () => {
    const server = await redisServer();
    const stock = new FencedStore();
    const a = await LockProcess.start({ redis: server.url, ttlMs: TTL_MS });
    const b = await openLocks({ redis: server.url });

    const lockOfA = await a.acquire('key');
    expect(stock.write('as A counted it', lockOfA.fencingToken)).toBe(true);
    await a.lookForPause('key', TTL_MS); // no shorter one ends its lease for sure
    a.pause();
    const stoppedAt = performance.now();
    const lockOfB = await b.acquire('key');
    expect(stock.write('as B sold it', lockOfB.fencingToken)).toBe(true);
    await until(() => performance.now() > stoppedAt + TTL_MS + 50, { what: "A's lease is over wherever it was" });
    a.resume();

    // What `assertHeld()` throws is a loss with this reason.
    expect(await a.firstLook()).toEqual({ isHeld: false, aborted: true, reason: 'stalled' });
    expect(lockOfB.fencingToken).toBeGreaterThan(lockOfA.fencingToken);
    expect(stock.write('as A saw it', lockOfA.fencingToken)).toBe(false);
    expect(stock.value).toBe('as B sold it');
    expect(await a.release('key')).toBe(false);
    expect(await lockOfB.release()).toBe(true);
  });
});
