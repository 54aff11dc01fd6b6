import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { tryLock } from '../support/naive.js';
import { clientOf, redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';

const TTL_MS = 1_000;
/** Longer than a busy machine lets a process stand still. */
const LONG_TTL_MS = 2_500;

describe('H5: the work takes longer than the ttl', () => {
  it('a naive lock lets the next holder in while the first is still at work', async () => {
    const server = await redisServer();
    const [a, b] = [clientOf(server), clientOf(server)];
    const atWork: string[] = [];
    expect(await tryLock(a, 'lock', 'A', TTL_MS)).toBe(true);
    atWork.push('A');
    await until(() => tryLock(b, 'lock', 'B', TTL_MS), { what: 'B has the lock' });
    atWork.push('B');
    expect(atWork).toEqual(['A', 'B']); // A does not know
  });

  it('this library keeps the lock for as long as the work takes, and nobody else gets it [G152]', async () => {
    const server = await redisServer();
    const [a, b] = await Promise.all([openLocks({ redis: server.url }), openLocks({ redis: server.url })]);
    const owners = new Set<unknown>();
    const work = a!.withLock('key', { ttlMs: LONG_TTL_MS }, async (lock) => {
      for (const end = performance.now() + 2 * LONG_TTL_MS; performance.now() < end; await sleep(20)) {
        expect(await b!.tryAcquire('key')).toBeNull();
        expect(lock.isHeld).toBe(true);
        owners.add(await ownerOn(server, 'key'));
      }
      return lock.owner;
    });
    expect(owners.add(await work).size).toBe(1);
    expect(await b!.tryAcquire('key')).not.toBeNull();
  });

  it('this library without the watchdog aborts the signal before another holder has the lock, and the call rejects [G153]', async () => {
    const server = await redisServer();
    const [a, b] = await Promise.all([openLocks({ redis: server.url }), openLocks({ redis: server.url })]);
    const order: string[] = [];
    const work = a!.withLock('key', { ttlMs: TTL_MS, watchdog: false }, async (lock) => {
      lock.signal.addEventListener('abort', () => order.push('A is told'));
      await b!.acquire('key');
      order.push('B has it');
      return 'too late';
    });
    await expect(work).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired', outcome: { value: 'too late' } });
    expect(order).toEqual(['A is told', 'B has it']);
  });
});
