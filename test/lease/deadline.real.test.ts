import { expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { redisServer } from '../support/stage.js';

it('a lock whose process was stopped for twice the ttl is not held in the first line that runs, and the next holder has a greater token [G8]', async () => {
  const ttlMs = 2_000;
  const server = await redisServer();
  const holder = await LockProcess.start({ redis: server.url, ttlMs });
  const locks = await openLocks({ redis: server.url });
  const { fencingToken } = await holder.acquire('stopped');
  await holder.lookForPause('stopped', ttlMs);
  const waiting = locks.acquire('stopped', { ttlMs: 10_000 });
  holder.pause();
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(fencingToken);
  await new Promise((resolve) => setTimeout(resolve, ttlMs));
  holder.resume();
  expect(await holder.firstLook()).toEqual({ isHeld: false, aborted: true, reason: 'stalled' });
  expect(await holder.release('stopped')).toBe(false);
  expect(next.isHeld).toBe(true);
  expect(await next.release()).toBe(true);
});
