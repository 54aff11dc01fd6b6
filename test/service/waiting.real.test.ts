import { afterAll, beforeAll, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

it('a lock whose holder was killed is had once its ttl is over', async () => {
  const holder = await LockProcess.start({ redis: server.url, ttlMs: 3_000 });
  await holder.acquire('crashed');
  const locks = await openLocks({ redis: server.url });
  const waiting = locks.acquire('crashed', { waitMs: 50_000 });
  await holder.kill();
  const askedAt = performance.now();
  const remainingMs = Number(await server.command('PTTL', 'lock:{crashed}'));
  const lock = await waiting;
  expect(lock.isHeld).toBe(true);
  expect(performance.now()).toBeGreaterThan(askedAt + remainingMs - 20); // Redis reads its clock once for commands that come together
});
