import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { redisServers } from '../support/stage.js';
import { eventsOf, sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, openBehindProxy, isFree, leftMs, untilQueued } = await sceneOfFile();

const valueOf = async (key: string) => String(await server.command('GET', `lock:{${key}}`));

describe('a lock with holdMs', () => {
  it('is kept for that time however its work ended, and says until when [G340]', async () => {
    const [locks, others] = [await open(), await open()];
    const events = eventsOf(locks);
    const boom = new Error('boom');
    await expect(locks.withLock('kept', { holdMs: 1_200 }, () => Promise.reject(boom))).rejects.toBe(boom);
    const endedAt = Date.now();
    const left = await leftMs('kept');
    expect(left).toBeLessThanOrEqual(1_200);
    const refused: unknown = await others.acquire('kept', { waitMs: 0 }).catch((error: unknown) => error);
    expect(refused).toMatchObject({ code: 'LOCK_CONTENDED', holder: { pid: process.pid } });
    const keptUntil = (refused as { keptUntil: Date }).keptUntil.getTime();
    expect(keptUntil).toBeGreaterThanOrEqual(endedAt + left - 100);
    expect(keptUntil).toBeLessThanOrEqual(Date.now() + 1_300);
    expect(String(refused)).toContain('kept until');
    expect(await others.inspect('kept')).toMatchObject({ keptUntil: expect.any(Date) as Date });
    await until(() => events.find(({ type }) => type === 'released'), { what: 'the event' });
    expect(events.find(({ type }) => type === 'released')).toMatchObject({ keptUntil: expect.any(Date) as Date });
    const waited = await others.acquire('kept', { waitMs: 5_000 });
    expect(Date.now()).toBeGreaterThanOrEqual(endedAt + left - 100);
    await waited.release();
    expect(await isFree('kept')).toBe(true);
  });

  it('is held in the store for that time before the call begins, and whenever it is extended [G341]', async () => {
    const locks = await open({ ttlMs: 1_500 });
    const lock = await locks.acquire('crash', { holdMs: 20_000 });
    expect(await leftMs('crash')).toBeGreaterThan(19_000); // what a crash would leave behind
    expect(lock.remainingMs).toBeLessThanOrEqual(1_500);
    const first = lock.remainingMs;
    await until(() => lock.remainingMs < first - 50, { what: 'a while' });
    await until(() => lock.remainingMs > first - 50, { what: 'an extension' });
    await lock.extend(100);
    expect(await leftMs('crash')).toBeGreaterThan(18_000);
    await lock.release();
    expect(await leftMs('crash')).toBeGreaterThan(18_000);
  });

  it('lasts that long even if it was handed over [G342]', async () => {
    const [locks, others] = [await open(), await open()];
    const held = await others.acquire('handed');
    const acquiring = locks.acquire('handed', { ttlMs: 1_000, holdMs: 10_000 });
    await untilQueued('handed');
    await held.release();
    const lock = await acquiring;
    expect(await leftMs('handed')).toBeGreaterThan(7_000);
    await lock.release();
    expect(await leftMs('handed')).toBeGreaterThan(6_000);
  });

  it('is released at once when the call gives up before it has it [G343]', async () => {
    const locks = await open();
    const events = eventsOf(locks);
    const giveUp = new AbortController();
    const reason = new Error('enough');
    locks.events$.subscribe(({ type }) => type === 'acquired' && giveUp.abort(reason));
    await expect(locks.acquire('gave-up', { holdMs: 10_000, signal: giveUp.signal })).rejects.toBe(reason);
    await until(() => isFree('gave-up'), { what: 'the lock to be free' });
    const released = await until(() => events.find(({ type }) => type === 'released'), { what: 'the event' });
    expect(released).not.toHaveProperty('keptUntil');
  });

  it('is released at once when the application has closed before the call has it [G338]', async () => {
    const locks = await open({ shutdownTimeoutMs: 5_000 });
    let closing: Promise<void> | undefined;
    locks.events$.subscribe(({ type }) => type === 'acquired' && (closing = locks.beforeApplicationShutdown()));
    await expect(locks.acquire('closed', { holdMs: 60_000 })).rejects.toThrow('The application is closing');
    await closing;
    await until(() => isFree('closed'), { what: 'the lock to be free' });
  });

  it('whose hold is not confirmed fails its call, and is released once it can be [G339]', async () => {
    const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 500 });
    locks.events$.subscribe(({ type }) => type === 'acquired' && proxy.dropReplies());
    await expect(locks.acquire('unconfirmed', { holdMs: 60_000 })).rejects.toThrow(/"unconfirmed" could not be kept/);
    proxy.passReplies();
    await until(() => isFree('unconfirmed'), { what: 'the lock to be free' });
    expect(locks.size).toBe(0);
  });

  it('is held for longer when a nested call wants that, or that call fails [G344]', async () => {
    const locks = await open();
    await locks.withLock('nested', { holdMs: 500 }, async () => {
      await locks.withLock('nested', { holdMs: 20_000 }, async () =>
        expect(await leftMs('nested')).toBeGreaterThan(18_000),
      );
      await locks.withLock('nested', { holdMs: 100 }, () => Promise.resolve());
    });
    expect(await leftMs('nested')).toBeGreaterThan(17_000);
    const outer = locks.withLock('failing', async () => {
      await server.command('DEL', 'lock:{failing}');
      const inner = locks.withLock('failing', { holdMs: 1_000 }, () => Promise.resolve('never'));
      await expect(inner).rejects.toThrow(/could not be kept: .*lost again before it could be kept \(expired\)/);
    });
    await expect(outer).rejects.toMatchObject({ code: 'LOCK_LOST' });
    expect(await isFree('failing')).toBe(true);
  });

  it('is left by a shutdown [G345]', async () => {
    const locks = await open();
    await locks.acquire('closing', { holdMs: 10_000 });
    await locks.acquire('not-kept');
    await locks.onApplicationShutdown();
    expect(await leftMs('closing')).toBeGreaterThan(7_000);
    expect(await valueOf('closing')).toMatch(/=$/);
    expect(await isFree('not-kept')).toBe(true);
  });

  it('is not passed on within the process, nor handed over, before its time has passed [G346]', async () => {
    const [locks, others] = [await open({ cohortMs: 5_000 }), await open()];
    const gate = new Gate();
    const first = locks.withLock('turns', { holdMs: 1_200 }, () => gate.opened);
    await until(async () => !(await isFree('turns')), { what: 'the first to hold it' });
    const heldFrom: number[] = [];
    const waiting = [locks, locks, others].map((service) =>
      service.withLock('turns', () => Promise.resolve(heldFrom.push(Date.now()))),
    );
    await untilQueued('turns');
    gate.open();
    await first;
    const endsAt = Date.now() + (await leftMs('turns'));
    expect(heldFrom).toEqual([]);
    await Promise.all(waiting);
    expect(Math.min(...heldFrom)).toBeGreaterThanOrEqual(endsAt - 20);
  });

  it('is kept when its lease was lost here, but remains in the store [G347]', async () => {
    const locks = await open();
    const lock = await locks.acquire('lost', { ttlMs: 400, watchdog: false, holdMs: 10_000 });
    await until(() => lock.signal.aborted, { what: 'the lease to end here' });
    await until(async () => (await valueOf('lost')).endsWith('='), { what: 'the lock to be kept' });
    expect(await leftMs('lost')).toBeGreaterThan(7_000);
    expect(await lock.release()).toBe(false);
    expect(await leftMs('lost')).toBeGreaterThan(7_000);
  });

  it('is not kept for a shorter time when the wall clock is set ahead meanwhile [G336]', async () => {
    const locks = await open();
    const dateNow = Date.now.bind(Date);
    onTestFinished(() => void vi.restoreAllMocks());
    await locks.withLock('clock', { holdMs: 10_000, onLost: 'ignore' }, async () => {
      vi.spyOn(Date, 'now').mockImplementation(() => dateNow() + 3_600_000);
    });
    await until(async () => !/\d$/.test(await valueOf('clock')), { what: 'the lock to be kept or released' });
    expect(await valueOf('clock')).toMatch(/=$/);
    expect(await leftMs('clock')).toBeGreaterThan(7_000);
  });

  it('lasts for the longest holdMs of calls that begin at the same time, however they are extended [G337]', async () => {
    const locks = await open({ ttlMs: 5_000 });
    await locks.withLock('both', async (lock) => {
      const nested = [20_000, 10_000].map((holdMs) => locks.acquire('both', { holdMs }));
      await Promise.all([...nested, lock.extend(3_000)]);
      expect(await leftMs('both')).toBeGreaterThan(18_000);
      for (const each of nested) await (await each).release();
    });
    expect(await leftMs('both')).toBeGreaterThan(17_000);
  });

  it('of a set is kept from the moment on that all of them are acquired [G348]', async () => {
    const [locks, others] = [await open(), await open()];
    const held = await others.acquire('s2');
    const acquiring = locks.acquireAll(['s1', 's2'], { holdMs: 10_000 });
    await untilQueued('s2');
    const waitedFrom = performance.now();
    await until(() => performance.now() > waitedFrom + 150, { what: 'a while' });
    const allFreeFrom = performance.now();
    await held.release();
    const set = await acquiring;
    const left = await leftMs('s1');
    expect(left).toBeGreaterThan(10_000 - (performance.now() - allFreeFrom) - 20);
    await set.release();
    expect((await valueOf('s1')).endsWith('=') && (await valueOf('s2')).endsWith('=')).toBe(true);
    const refused = await others.tryAcquireAll(['s1', 's3']);
    expect(refused).toBeNull();
  });

  it('of a Redlock is kept by a majority, for the ttl of the registration at most [G349]', async () => {
    const nodes = await redisServers(3);
    const locks = await openLocks({ redlock: nodes.map(({ url }) => url), admission: false, ttlMs: 5_000 });
    await expect(locks.acquire('quorum', { holdMs: 5_001 })).rejects.toThrow(
      /holdMs must be at most 5000: got 5001\. On a Redlock, that is the ttlMs of the registration: /,
    );
    await locks.withLock('quorum', { ttlMs: 3_000, holdMs: 5_000 }, () => Promise.resolve());
    expect(await locks.inspect('quorum')).toMatchObject({ keptUntil: expect.any(Date) as Date });
    expect(await locks.tryAcquire('quorum')).toBeNull();
  });

  it('no call on a Redlock asks for a longer ttlMs than the registration has, so none keeps others from their locks [G1016]', async () => {
    const nodes = await redisServers(3);
    const redlock = nodes.map(({ url }) => url);
    const locks = await openLocks({ redlock, ttlMs: 5_000, policies: { short: { ttlMs: 4_000 } } });
    const tooLong = /ttlMs must be at most 5000: got 60000\. On a Redlock, that is the ttlMs of the registration: /;
    await expect(locks.acquire('long', { ttlMs: 60_000 })).rejects.toThrow(tooLong);
    await locks.withLock('extended', { policy: 'short' }, async (lock) => {
      await expect(lock.extend(60_000)).rejects.toThrow(tooLong);
      expect(lock.isHeld).toBe(true);
    });
    expect(() => locks.leader('leader', { ttlMs: 60_000 })).toThrow(tooLong);
    await locks.withLock('other', () => {});
    await (await openLocks({ redlock, ttlMs: 5_000 })).withLock('later', () => {});
    const policies = { long: { ttlMs: 60_000 } };
    await expect(openLocks({ redlock, ttlMs: 5_000, policies })).rejects.toThrow(
      /^In policies\.long: ttlMs must be at most 5000/,
    );
  });

  it('an election on a Redlock with a shorter ttlMs has the ttlMs of the registration unless it names one [G1017]', async () => {
    const nodes = await redisServers(3);
    const locks = await openLocks({ redlock: nodes.map(({ url }) => url), admission: false, ttlMs: 5_000 });
    const election = locks.leader('leader');
    await until(() => election.isLeader, { what: 'it is elected' });
  });
});
