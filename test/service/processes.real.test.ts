import { afterAll, afterEach, describe, expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { FencedStore } from '../hazards/fenced-store.js';
import { LockProcess } from '../support/lock-process.js';
import { proxyTo } from '../support/stage.js';
import { membersOn, timeOn } from '../support/stored.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

/** Long enough that nobody loses a lock because the machine is busy. */
const TTL_MS = 4_000;
const READ = { mode: 'shared', ttlMs: TTL_MS } as const;
const PATIENT = { waitMs: 120_000 };

const { server, open, ownerOf, untilQueued } = await sceneOfFile({ commandTimeoutMs: 20_000 }); // on a busy machine
const proxy = await TcpProxy.start(server.port);
afterAll(() => proxy.stop());
/** A process that tests stop, and one whose connections go through the proxy. */
const direct = await LockProcess.start({ redis: server.url }, afterAll);
const frozen = await LockProcess.start({ redis: proxy.url }, afterAll);

afterEach(() => {
  for (const each of [direct, frozen]) each.resume();
  proxy.release();
});

const endOf = async (key: string, owner: string) =>
  (await membersOn(server, key)).find((member) => member.owner === owner)!.endsAt;
const ownersOf = async (locks: LockService, key: string) =>
  (await locks.inspect(key))?.holders.map(({ holder }) => holder.owner) ?? [];

it('a reader that is stopped for longer than its ttl learns of its loss when it resumes, and its token is refused once a writer has written [G914]', async () => {
  const report = new FencedStore();
  const [locks, stopped] = [await open(), direct];
  const stays = await locks.acquire('stopped', { mode: 'shared' });
  const late = await stopped.acquire('stopped', READ);
  expect(report.write('read by one', late.fencingToken)).toBe(true);
  expect(report.write('read by another', stays.fencingToken)).toBe(true);
  await stopped.lookForPause('stopped', TTL_MS);
  stopped.pause();
  const stoppedAt = performance.now();
  const endsAt = await endOf('stopped', late.owner);
  const writing = locks.acquire('stopped', PATIENT);
  await untilQueued('stopped');
  await stays.release();
  const writer = await writing;
  expect(await timeOn(server)).toBeGreaterThan(endsAt);
  expect(report.write('written', writer.fencingToken)).toBe(true);
  await until(() => performance.now() > stoppedAt + TTL_MS + 50, { what: 'its lease is over wherever it was' });
  stopped.resume();
  expect(await stopped.firstLook()).toEqual({ isHeld: false, aborted: true, reason: 'stalled' });
  expect(report.write('read too late', late.fencingToken)).toBe(false);
  expect(await stopped.release('stopped')).toBe(false);
  expect(await ownerOf('stopped')).toBe(writer.owner);
  expect(await writer.release()).toBe(true);
});

it('a holder of permits that is stopped for longer than its ttl learns of its loss when it resumes, and releases nothing that others hold [G915]', async () => {
  const [locks, stopped] = [await open(), direct];
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

it('a process that was stopped between detach and adopt can change nothing for the adopter with its parcel later [G916]', async () => {
  const [sender, adopter] = [frozen, direct];
  const held = await sender.acquire('parcel', { ttlMs: TTL_MS });
  const parcel = await sender.detach('parcel', 60_000);
  proxy.hold();
  const sent = [sender.extendParcel(parcel, 20), sender.releaseParcel(parcel)]; // Redis gets it after another process has adopted it
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
  expect(await ownerOf('parcel')).toBe(adopted.owner);
  expect(await adopter.isHeld('parcel')).toBe(true);
  expect(await adopter.release('parcel')).toBe(true);
});

it('a process whose clock is an hour ahead frees no permits that others hold: they end by the clock of Redis [G922]', async () => {
  const locks = await open();
  const held = await locks.acquirePermits('clock', { limit: 2, permits: 2, watchdog: false });
  const ahead = await LockProcess.start({ redis: server.url, clockAheadMs: 3_600_000 });
  const hasSeen = ahead.acquirePermits('clock', { limit: 2, waitMs: 0 });
  await expect(hasSeen).rejects.toThrow('LockContendedError');
  expect(await ownersOf(locks, 'clock')).toEqual([held.owner]);
  const waits = ahead.acquirePermits('clock', { limit: 2, ...PATIENT });
  await untilQueued('clock');
  expect(await held.release()).toBe(true); // until then it had them
  const { owner } = await waits;
  expect(await endOf('clock', owner)).toBeLessThan((await timeOn(server)) + 60_000);
});

// As functions are frozen between two invocations.

const once = { waiters: 1, turns: 1 };

describe('A process that is frozen between two calls', () => {
  it('locks again when it goes on, though its connections were closed meanwhile [G926]', async () => {
    const [before] = await frozen.turns('key', once);
    frozen.pause();
    proxy.cut();
    await until(() => proxy.present === 0, { what: 'they are closed' });
    frozen.resume();
    const [after] = await frozen.turns('key', once);
    expect(after!.fencingToken).toBeGreaterThan(before!.fencingToken);
    expect(await server.keys('lock:{key}')).toEqual([]);
  });

  it('locks again when it goes on, though its connections were dropped silently [G927]', async () => {
    const own = await proxyTo(server);
    const a = await LockProcess.start({ redis: own.url, commandTimeoutMs: 100 });
    const turn = () => a.turns('key', once).catch(() => undefined);
    await until(turn, { what: 'it is connected' });
    a.pause();
    own.hideCloses();
    for (const port of own.portsAtServer)
      await server.command('CLIENT', 'KILL', 'ADDR', `127.0.0.1:${port}`).catch(() => {}); // it may be closed
    a.resume();
    await until(turn, { what: 'a call succeeds' });
  });

  it('leaves an unreleased lock to others when its ttl has passed, and knows that when it resumes [G928]', async () => {
    const b = await open();
    const left = await frozen.acquire('key', { ttlMs: 1_000, watchdog: false });
    frozen.pause();
    const lock = await b.acquire('key', { waitMs: 60_000 });
    expect(lock.fencingToken).toBeGreaterThan(left.fencingToken);
    frozen.resume();
    expect(await frozen.isHeld('key')).toBe(false);
    expect(await frozen.release('key')).toBe(false);
    expect(lock.isHeld).toBe(true);
    await lock.release();
  });
});

it('a lock whose process is killed between detach and adopt remains valid for its parcel, which another process adopts; killed before it adopts, it ends by its ttl [G822]', async () => {
  const [others, adopter] = [await open(), direct];
  const options = { redis: server.url };

  const sender = await LockProcess.start(options);
  const { fencingToken } = await sender.acquire('order', { ttlMs: 1_000 });
  const parcel = await sender.detach('order', 60_000);
  await sender.kill();
  await expect(others.acquire('order', { waitMs: 1_500 })).rejects.toMatchObject({
    code: 'LOCK_CONTENDED',
    holder: { pid: sender.pid, detached: true },
  }); // longer than the lease of its process
  const adopted = await adopter.adopt(parcel);
  expect(adopted.fencingToken).toBeGreaterThan(fencingToken);
  expect(await ownerOf('order')).toBe(adopted.owner);
  expect(await adopter.release('order')).toBe(true);

  const second = await LockProcess.start(options);
  await second.acquire('order');
  const lost = await second.detach('order', 400);
  await second.kill();
  await until(async () => (await ownerOf('order')) === null, { what: 'its ttl has passed' });
  await expect(adopter.adopt(lost)).rejects.toThrow(/\(expired\)/);
  const next = await others.acquire('order');
  expect(next.fencingToken).toBeGreaterThan(adopted.fencingToken);
  await next.release();
});

it('a lock whose process was stopped for twice the ttl is not held in the first line that runs, and the next holder has a greater token [G8]', async () => {
  const ttlMs = 2_000;
  const [holder, locks] = [direct, await open()];
  const { fencingToken } = await holder.acquire('slept', { ttlMs });
  await holder.lookForPause('slept', ttlMs);
  const waiting = locks.acquire('slept', { ttlMs: 10_000 });
  holder.pause();
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(fencingToken);
  await new Promise((resolve) => setTimeout(resolve, ttlMs));
  holder.resume();
  expect(await holder.firstLook()).toEqual({ isHeld: false, aborted: true, reason: 'stalled' });
  expect(await holder.release('slept')).toBe(false);
  expect(next.isHeld).toBe(true);
  expect(await next.release()).toBe(true);
});
