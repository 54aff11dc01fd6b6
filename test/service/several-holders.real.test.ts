import { afterAll, beforeAll, expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { FencedStore } from '../hazards/fenced-store.js';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { proxyTo } from '../support/stage.js';
import { membersOn, ownerOn, timeOn } from '../support/stored.js';
import { until } from '../support/until.js';

/** So long that nobody loses a lock because the machine is busy. */
const TTL_MS = 4_000;
const READ = { mode: 'shared', ttlMs: TTL_MS } as const;
const PATIENT = { waitMs: 120_000 };

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const open = () => openLocks({ redis: server.url });
const start = () => LockProcess.start({ redis: server.url });
const endOf = async (key: string, owner: string) =>
  (await membersOn(server, key)).find((member) => member.owner === owner)!.endsAt;
const ownersOf = async (locks: LockService, key: string) =>
  (await locks.inspect(key))?.holders.map(({ holder }) => holder.owner) ?? [];

it('a reader that is stopped for longer than its ttl learns its loss when it wakes up, and its token is refused once a writer has written [G914]', async () => {
  const report = new FencedStore();
  const [locks, stopped] = [await open(), await start()];
  const stays = await locks.acquire('stopped', { mode: 'shared' });
  const late = await stopped.acquire('stopped', READ);
  expect(report.write('read by one', late.fencingToken)).toBe(true);
  expect(report.write('read by another', stays.fencingToken)).toBe(true);
  await stopped.lookForPause('stopped', TTL_MS);
  stopped.pause();
  const stoppedAt = performance.now();
  const endsAt = await endOf('stopped', late.owner);
  const writing = locks.acquire('stopped', PATIENT);
  await untilQueued(server, 'stopped', 1);
  await stays.release();
  const writer = await writing;
  expect(await timeOn(server)).toBeGreaterThan(endsAt);
  expect(report.write('written', writer.fencingToken)).toBe(true);
  await until(() => performance.now() > stoppedAt + TTL_MS + 50, { what: 'its lease is over wherever it was' });
  stopped.resume();
  expect(await stopped.firstLook()).toEqual({ isHeld: false, aborted: true, reason: 'stalled' });
  expect(report.write('read too late', late.fencingToken)).toBe(false);
  expect(await stopped.release('stopped')).toBe(false);
  expect(await ownerOn(server, 'stopped')).toBe(writer.owner);
  expect(await writer.release()).toBe(true);
});

it('who holds permits and is stopped for longer than its ttl learns its loss when it wakes up, and gives back none of what others hold [G915]', async () => {
  const [locks, stopped] = [await open(), await start()];
  const stays = await locks.acquirePermits('paused', { limit: 2 });
  const { owner } = await stopped.acquirePermits('paused', { limit: 2, ttlMs: TTL_MS });
  await stopped.lookForPause('paused', TTL_MS);
  stopped.pause();
  const stoppedAt = performance.now();
  const endsAt = await endOf('paused', owner);
  const next = await locks.acquirePermits('paused', { limit: 2, ...PATIENT });
  expect(await timeOn(server)).toBeGreaterThan(endsAt);
  await until(() => performance.now() > stoppedAt + TTL_MS + 50, { what: 'its lease is over wherever it was' });
  stopped.resume();
  expect(await stopped.firstLook()).toEqual({ isHeld: false, aborted: true, reason: 'stalled' });
  expect(await stopped.release('paused')).toBe(false);
  expect((await ownersOf(locks, 'paused')).sort()).toEqual([stays.owner, next.owner].sort());
  await expect(locks.tryAcquirePermits('paused', { limit: 2 })).resolves.toBeNull();
});

it('what a process that was stopped between detach and adopt does with the parcel later changes nothing for the adopter [G916]', async () => {
  const proxy = await proxyTo(server);
  const [sender, adopter] = [await LockProcess.start({ redis: proxy.url, commandTimeoutMs: 60_000 }), await start()];
  const held = await sender.acquire('parcel', { ttlMs: TTL_MS });
  const parcel = await sender.detach('parcel', 60_000);
  proxy.hold();
  const sent = [sender.extendParcel(parcel, 20), sender.releaseParcel(parcel)]; // which Redis gets when another has adopted it
  await sender.begun();
  sender.pause();
  const adopted = await adopter.adopt(parcel);
  expect(adopted.fencingToken).toBeGreaterThan(held.fencingToken);
  proxy.release();
  sender.resume();
  const [extension, release] = await Promise.allSettled(sent);
  expect(String((extension as PromiseRejectedResult).reason)).toContain('(stolen)');
  expect(release).toEqual({ status: 'fulfilled', value: false });
  expect(await sender.release('parcel')).toBe(false);
  await expect(sender.adopt(parcel)).rejects.toThrow(/\(stolen\)/);
  expect(await ownerOn(server, 'parcel')).toBe(adopted.owner);
  expect(await adopter.isHeld('parcel')).toBe(true);
  expect(await adopter.release('parcel')).toBe(true);
});

it('a process whose clock is an hour ahead frees no permits that others hold: their ends are by the clock of Redis [G922]', async () => {
  const locks = await open();
  const held = await locks.acquirePermits('clock', { limit: 2, permits: 2, watchdog: false });
  const ahead = await LockProcess.start({ redis: server.url, clockAheadMs: 3_600_000 });
  const hasSeen = ahead.acquirePermits('clock', { limit: 2, waitMs: 0 });
  await expect(hasSeen).rejects.toThrow('LockContendedError');
  expect(await ownersOf(locks, 'clock')).toEqual([held.owner]);
  const waits = ahead.acquirePermits('clock', { limit: 2, ...PATIENT });
  await untilQueued(server, 'clock', 1);
  expect(await held.release()).toBe(true); // until then it had them
  const { owner } = await waits;
  expect(await endOf('clock', owner)).toBeLessThan((await timeOn(server)) + 60_000);
});
