import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts } from '../support/script-calls.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
  await loadScripts(server);
});
afterAll(() => server.stop());

/** Fair services that listen already: before its first wait a process has no place in the queue. */
async function openFair(count: number): Promise<LockService[]> {
  const services = await Promise.all(Array.from({ length: count }, () => openLocks({ redis: server.url, fair: true })));
  await Promise.all(services.map((locks, index) => listening(locks, `listening ${index}`)));
  return services;
}

async function listening(locks: LockService, key: string): Promise<void> {
  await server.command('SET', `lock:{${key}}`, 'a person');
  const waiting = locks.acquire(key);
  await untilQueued(server, key, 1);
  await server.command('DEL', `lock:{${key}}`);
  await (await waiting).release();
}

describe('with fair: true', () => {
  it('tryAcquire with fair: true never waits, has no place in the queue, and does not overtake [G117]', async () => {
    const [first, second, third] = await openFair(3);
    const held = await first!.acquire('tries');
    expect(await second!.tryAcquire('tries')).toBeNull();
    expect(await queued(server, 'tries')).toBe(0);
    const waiting = third!.acquire('tries');
    await untilQueued(server, 'tries', 1);
    expect(await second!.tryAcquire('tries')).toBeNull();
    expect(await queued(server, 'tries')).toBe(1);
    await server.command('DEL', 'lock:{tries}');
    expect(await second!.tryAcquire('tries')).toBeNull(); // it is free, but the other one's turn
    const lock = await waiting;
    expect(lock.isHeld).toBe(true);
    expect(await third!.tryAcquire('tries')).toBeNull();
    await lock.release();
    expect(await (await second!.tryAcquire('tries'))!.release()).toBe(true);
    expect(await held.release()).toBe(false);
  });

  it('a call beyond maxWaiters is rejected at once [G126]', async () => {
    const [locks] = [await openLocks({ redis: server.url, fair: true, maxWaiters: 2 })];
    await listening(locks, 'fair-max-warm');
    const holder = await locks.acquire('fair-max');
    const calls = [locks.acquire('fair-max'), locks.acquire('fair-max')];
    await expect(locks.acquire('fair-max')).rejects.toMatchObject({ code: 'LOCK_CONTENDED', maxWaiters: 2 });
    await holder.release();
    for (const call of calls) await (await call).release();
  });
});
