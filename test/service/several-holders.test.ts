import { expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { proxyTo, serverOfFile } from '../support/stage.js';
import { membersOn, timeOn } from '../support/stored.js';
import { until } from '../support/until.js';

const TTL_MS = 4_000;
const READ = { mode: 'shared', ttlMs: TTL_MS } as const;
const PATIENT = { waitMs: 120_000 };

const server = await serverOfFile();

const open = () => openLocks({ redis: server.url });
/** A service that can be cut off for good: to Redis, and to the others, that is all there is to see of a death. */
async function mortal() {
  const proxy = await proxyTo(server);
  return { locks: await openLocks({ redis: proxy.url }), die: () => proxy.stop() };
}
const endOf = async (key: string, owner: string) =>
  (await membersOn(server, key)).find((member) => member.owner === owner)!.endsAt;
const ownersOf = async (locks: LockService, key: string) =>
  (await locks.inspect(key))?.holders.map(({ holder }) => holder.owner) ?? [];

it('a reader that is killed keeps a writer away until its ttl is over, not for longer while others renew theirs, and these do not notice [G911]', async () => {
  const locks = await open();
  const dying = await mortal();
  const readers = [dying.locks, ...(await Promise.all([1, 2, 3, 4].map(open)))];
  const leases = await Promise.all(readers.map((reader) => reader.acquire('left', READ)));
  const renewing = await Promise.all(readers.map((reader) => reader.acquire('renewed', READ)));
  expect(new Set(leases.map(({ fencingToken }) => fencingToken)).size).toBe(1);
  await dying.die();
  const endsAt = await endOf('left', leases[0]!.owner);
  const alsoEndsAt = await endOf('renewed', renewing[0]!.owner);

  // The others give this one back at once: the writer gets it when the time of the dead reader is over.
  const writing = locks.acquire('left', PATIENT);
  await untilQueued(server, 'left', 1);
  for (const lease of leases.slice(1)) expect(await lease.release()).toBe(true);
  const writer = await writing;
  expect(await timeOn(server)).toBeGreaterThan(endsAt);
  expect(writer.fencingToken).toBeGreaterThan(leases[0]!.fencingToken);

  // And they go on to hold this one, for far longer.
  const waits = locks.acquire('renewed', PATIENT);
  const renewed = async () =>
    (await membersOn(server, 'renewed')).filter((member) => member.endsAt > alsoEndsAt + TTL_MS);
  await until(async () => (await renewed()).length === 4, { what: 'all others have extended theirs' });
  expect(await ownersOf(locks, 'renewed')).toHaveLength(4);
  for (const lease of renewing.slice(1)) {
    expect(lease.isHeld).toBe(true);
    expect(await lease.release()).toBe(true);
  }
  expect((await waits).isHeld).toBe(true);
});

it('a writer that is killed while it waits lets in the readers behind it, beside those who read [G912]', async () => {
  const [first, behind, dying] = [await open(), await open(), await mortal()];
  const reader = await first.acquire('writer', { mode: 'shared' });
  dying.locks.acquire('writer', PATIENT).catch(() => {});
  await untilQueued(server, 'writer', 1);
  const waits = behind.acquire('writer', { mode: 'shared', ...PATIENT });
  await untilQueued(server, 'writer', 2);
  await dying.die();
  const next = await waits;
  expect(reader.isHeld).toBe(true);
  expect(next.fencingToken).toBe(reader.fencingToken);
  expect((await ownersOf(first, 'writer')).sort()).toEqual([reader.owner, next.owner].sort());
});

it('the permits of a process that is killed are free when its ttl is over, and not before [G913]', async () => {
  const [locks, dying] = [await open(), await mortal()];
  const stays = await locks.acquirePermits('killed', { limit: 3 });
  const { owner } = await dying.locks.acquirePermits('killed', { limit: 3, permits: 2, ttlMs: TTL_MS });
  await dying.die();
  const endsAt = await endOf('killed', owner);
  const next = await locks.acquirePermits('killed', { limit: 3, permits: 2, ...PATIENT });
  expect(await timeOn(server)).toBeGreaterThan(endsAt);
  expect(stays.isHeld).toBe(true);
  expect((await locks.inspect('killed'))?.permits).toEqual({ held: 3, limit: 3 });
  expect(await next.release()).toBe(true);
});
