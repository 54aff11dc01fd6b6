import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { serverOfFile } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';

const server = await serverOfFile();

describe('with the watchdog on', () => {
  it('a lock has exactly one holder while a handler runs for five times the ttl, though others try all the time [G1]', async () => {
    const [locks, others] = await Promise.all([1, 2].map(() => openLocks({ redis: server.url, ttlMs: 1_500 })));
    let tries = 0;
    await locks!.withLock('long', async (lock) => {
      for (const end = performance.now() + 7_500; performance.now() < end; tries++) {
        expect(await others!.tryAcquire('long')).toBeNull();
        expect(await ownerOn(server, 'long')).toBe(lock.owner);
        expect(lock.isHeld).toBe(true);
        await sleep(20);
      }
    });
    expect(tries).toBeGreaterThan(10);
  });
});

describe('with the watchdog off', () => {
  it('the signal of a lock without the watchdog aborts at the deadline, before Redis gives the key to others [G37]', async () => {
    const locks = await openLocks({ redis: server.url, watchdog: false, marginMs: 1_000 });
    const validityMs = 1_300 - 13 - 2 - 1_000;
    const order: string[] = [];
    setTimeout(() => order.push('50 ms before'), validityMs - 50);
    const lock = await locks.acquire('off', { ttlMs: 1_300 });
    setTimeout(() => order.push('50 ms after'), validityMs + 50);
    lock.signal.addEventListener('abort', () => order.push(`aborted, held: ${lock.isHeld}`));
    expect(order).toEqual([]);
    await until(() => lock.signal.aborted, { what: 'the signal has aborted' });
    expect(await ownerOn(server, 'off')).toBe(lock.owner);
    await until(() => order.length === 3, { what: 'both timers have fired' });
    expect(order).toEqual(['50 ms before', 'aborted, held: false', '50 ms after']);
    expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST', key: 'off', reason: 'expired' });
  });

  it('the error of work that fails after the loss of its lock is kept in the outcome [G42]', async () => {
    const locks = await openLocks({ redis: server.url });
    const failure = new Error('from the work');
    const working = locks.withLock('fails', { ttlMs: 200, watchdog: false }, async (lock) => {
      await until(() => lock.signal.aborted, { what: 'the lock is lost' });
      throw failure;
    });
    await expect(working).rejects.toMatchObject({
      reason: 'expired',
      outcome: { status: 'rejected', reason: failure },
    });
  });

  it("a call with onLost: 'ignore' settles as its work does [G43]", async () => {
    const locks = await openLocks({ redis: server.url, onLost: 'ignore' });
    const untilLost = (result: () => string) =>
      locks.withLock('ignored', { ttlMs: 50, watchdog: false }, async (lock) => {
        await until(() => !lock.isHeld, { what: 'the lock is lost' });
        return result();
      });
    expect(await untilLost(() => 'value')).toBe('value');
    const fails = untilLost(() => {
      throw new Error('from the work');
    });
    await expect(fails).rejects.toThrow('from the work');
  });
});
