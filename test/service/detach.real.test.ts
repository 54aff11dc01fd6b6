import { expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';

it('a lock whose process is killed between detach and adopt stands for its parcel, which another process adopts; killed before it adopts, it ends by its ttl [G822]', async () => {
  const server = await redisServer();
  const options = { redis: server.url, commandTimeoutMs: 20_000 };
  const others = await openLocks(options);

  const sender = await LockProcess.start(options);
  const { fencingToken } = await sender.acquire('order', { ttlMs: 1_000 });
  const parcel = await sender.detach('order', 60_000);
  await sender.kill();
  await expect(others.acquire('order', { waitMs: 1_500 })).rejects.toMatchObject({
    code: 'LOCK_CONTENDED',
    holder: { pid: sender.pid, detached: true },
  }); // longer than the lease of its process was
  const adopter = await LockProcess.start(options);
  const adopted = await adopter.adopt(parcel);
  expect(adopted.fencingToken).toBeGreaterThan(fencingToken);
  expect(await ownerOn(server, 'order')).toBe(adopted.owner);
  expect(await adopter.release('order')).toBe(true);

  const second = await LockProcess.start(options);
  await second.acquire('order');
  const lost = await second.detach('order', 400);
  await second.kill();
  await until(async () => (await ownerOn(server, 'order')) === null, { what: 'its ttl is over' });
  await expect(adopter.adopt(lost)).rejects.toThrow(/\(expired\)/);
  const next = await others.acquire('order');
  expect(next.fencingToken).toBeGreaterThan(adopted.fencingToken);
  await next.release();
});
