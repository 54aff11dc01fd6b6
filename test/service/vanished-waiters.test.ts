import { afterAll, beforeAll, beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { RedisLockSettings } from '../../lib/compose/redis-lock-options.js';
import type { LockService } from '../../lib/core/service/lock.service.js';
import { CONTEND } from '../../lib/stores/redis/scripts/lua.js';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { queued, subscribers, untilQueued, untilSubscribers } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { ownerOn } from '../support/stored.js';

/** A grant that is not confirmed stands for 2 s, and who waits looks after 1 s at the latest; the rest is for slow machines. */
const AT_MOST_MS = 8_000;

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
beforeEach(() => loadScripts(server));
afterAll(() => server.stop());

const open = (settings: RedisLockSettings = {}) => openLocks({ redis: server.url, ...settings });
const start = () => LockProcess.start({ redis: server.url });
const holderOf = (key: string) => ownerOn(server, key);

async function within<T>(limitMs: number, served: Promise<T>): Promise<T> {
  const from = performance.now();
  const value = await served;
  expect(performance.now() - from).toBeLessThan(limitMs);
  return value;
}

/** Who has waited for some lock listens from then on. */
async function haveWaited(key: string, others: LockService, ...waiters: (LockProcess | LockService)[]): Promise<void> {
  const listening = await subscribers(server);
  const holder = await others.acquire(key);
  const turns = waiters.map((waiter) =>
    waiter instanceof LockProcess
      ? waiter.acquire(key, { waitMs: 60_000 }).then(() => waiter.release(key))
      : waiter.withLock(key, { waitMs: 60_000 }, () => {}),
  );
  await untilSubscribers(server, listening + waiters.length);
  await holder.release();
  await Promise.all(turns);
}

/** One holds the lock, a process waits for it, and a service behind that. */
async function queueOf(key: string) {
  const [waiter, locks, others] = [await start(), await open(), await open()];
  await haveWaited(`before ${key}`, others, waiter, locks);
  const holder = await others.acquire(key);
  const first = waiter.acquire(key, { waitMs: 60_000 });
  await untilQueued(server, key, 1);
  const second = locks.acquire(key, { waitMs: 60_000 });
  await untilQueued(server, key, 2);
  return { holder, waiter, first, second };
}

describe('a waiter that', () => {
  it.each([true, false])('aborts leaves the queue, and the next one is served at once (fair: %s)', async (fair) => {
    const [locks, others, third] = [await open({ fair }), await open({ fair }), await open({ fair })];
    const key = `aborts ${fair}`;
    await haveWaited(`before ${key}`, others, locks, third);
    const holder = await others.acquire(key);
    const controller = new AbortController();
    const aborted = locks.acquire(key, { signal: controller.signal });
    await untilQueued(server, key, 1);
    const next = third.acquire(key);
    await untilQueued(server, key, 2);
    controller.abort(new Error('gone'));
    await expect(aborted).rejects.toThrow('gone');
    await untilQueued(server, key, 1);
    await server.resetCalls();
    await holder.release();
    expect((await next).isHeld).toBe(true);
    await until(async () => (await scriptCalls(server)) === 2, { what: 'it extends what was handed over' });
    expect(locks.size).toBe(0);
  });

  it('aborts in its process leaves the queue', async () => {
    const { waiter, first, holder, second } = await queueOf('aborts-process');
    const aborted = first.catch((error: unknown) => error);
    await waiter.abort('aborts-process');
    expect(String(await aborted)).toContain('aborted');
    await untilQueued(server, 'aborts-process', 1);
    await holder.release();
    await second;
  });

  it.each([true, false])('has waited in vain leaves the queue, and the queue leaves Redis (fair: %s)', async (fair) => {
    const [locks, others] = [await open({ fair }), await open({ fair })];
    const key = `in-vain ${fair}`;
    await others.acquire(key);
    await expect(locks.acquire(key, { waitMs: 500 })).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
    await until(async () => (await server.keys(`lock:{${key}}:queue`)).length === 0, { what: 'the queue is gone' });
  });

  it('aborts just when the lock is handed over to it gives it to the next one', async () => {
    const [locks, others, third] = [await open(), await open(), await open()];
    let slow = 0;
    for (let round = 0; round < 20; round++) {
      const holder = await others.acquire('just-then');
      const controller = new AbortController();
      const settled = locks.acquire('just-then', { signal: controller.signal }).then(
        (lock) => lock.release(),
        () => {},
      );
      await untilQueued(server, 'just-then', 1);
      const next = third.acquire('just-then');
      await untilQueued(server, 'just-then', 2);
      const released = holder.release();
      if (round % 2) await released;
      controller.abort();
      const from = performance.now();
      const lock = await next;
      if (performance.now() - from > 1_500) slow++;
      await settled;
      await lock.release();
    }
    expect(slow).toBeLessThan(3); // a grant that nobody wants would stand for 2 s each time; machines are slow at times
    expect(await server.keys('lock:{just-then}*')).toEqual([]);
  });

  it('aborts while its server does not answer leaves the queue later', async () => {
    const proxy = await TcpProxy.start(server.port);
    onTestFinished(() => proxy.stop());
    const [locks, others, third] = [
      await openLocks({ redis: proxy.url, commandTimeoutMs: 400 }),
      await open(),
      await open(),
    ];
    await others.acquire('no-answer');
    const controller = new AbortController();
    const aborted = locks.acquire('no-answer', { signal: controller.signal });
    await untilQueued(server, 'no-answer', 1);
    const behind = third.acquire('no-answer').catch(() => {}); // keeps the queue in Redis
    await untilQueued(server, 'no-answer', 2);
    proxy.hold();
    controller.abort(new Error('gone'));
    await expect(aborted).rejects.toThrow('gone');
    await expect(locks.isLocked('no-answer')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    proxy.cut(); // with what it held back
    proxy.release();
    await untilQueued(server, 'no-answer', 1);
    await others.forceRelease('no-answer');
    await behind;
  });

  it('never learns that it has a place leaves it later', async () => {
    const proxy = await TcpProxy.start(server.port);
    onTestFinished(() => proxy.stop());
    const [locks, others, third] = [
      await openLocks({ redis: proxy.url, commandTimeoutMs: 400 }),
      await open(),
      await open(),
    ];
    await others.acquire('no-reply');
    await locks.acquire('no-reply', { waitMs: 300 }).catch(() => {}); // it listens from here on
    const behind = third.acquire('no-reply').catch(() => {}); // keeps the queue in Redis
    await untilQueued(server, 'no-reply', 1);
    proxy.refuse();
    const cut = proxy.cutAfterRequest(CONTEND.sha);
    await expect(locks.acquire('no-reply')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await cut;
    expect(await queued(server, 'no-reply')).toBe(2);
    await proxy.accept();
    await untilQueued(server, 'no-reply', 1);
    await others.forceRelease('no-reply');
    await behind;
  });

  it('a waiter that was killed while it waited is passed over by the same release [G118]', async () => {
    const { waiter, holder, second } = await queueOf('killed');
    const listening = await subscribers(server);
    await waiter.kill();
    await untilSubscribers(server, listening - 1);
    expect(await queued(server, 'killed')).toBe(2); // it had no time to say so
    await server.resetCalls();
    await holder.release();
    expect((await second).isHeld).toBe(true);
    await until(async () => (await scriptCalls(server)) === 2, { what: 'it extends what was handed over' });
    expect(await queued(server, 'killed')).toBe(0);
  });

  it('was killed while it waited leaves Redis by itself, also when nobody else comes', async () => {
    const [waiter, others] = [await start(), await open()];
    await others.acquire('left-behind');
    void waiter.acquire('left-behind');
    await untilQueued(server, 'left-behind', 1);
    await waiter.kill();
    const leftMs = (await server.command('PTTL', 'lock:{left-behind}:queue')) as number;
    expect(leftMs).toBeGreaterThan(5_000);
    expect(leftMs).toBeLessThanOrEqual(10_000);
  });

  it('stays keeps its place in Redis for longer than the queue is kept there', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('stays');
    const waiting = locks.acquire('stays', { waitMs: 60_000 });
    await untilQueued(server, 'stays', 1);
    await server.command('PEXPIRE', 'lock:{stays}:queue', 3_000);
    const kept = async () => ((await server.command('PTTL', 'lock:{stays}:queue')) as number) > 5_000;
    await until(kept, { what: 'it has said that it still waits' });
    await holder.release();
    await waiting;
  });

  it('a waiter that is killed between grant and confirmation delays the next one for as long as the grant stands [G119]', async () => {
    const { waiter, holder, second } = await queueOf('killed-granted');
    waiter.pause();
    await holder.release();
    expect(await holderOf('killed-granted')).toContain(`/${waiter.pid}/`);
    expect(await server.command('PTTL', 'lock:{killed-granted}')).toBeLessThanOrEqual(2_000);
    await waiter.kill();
    const lock = await within(AT_MOST_MS, second);
    expect(lock.isHeld).toBe(true);
  });

  it('a waiter that is stopped between grant and confirmation does not hold the lock when it wakes up [G120]', async () => {
    const { waiter, holder, first, second } = await queueOf('stopped');
    let isGranted = false;
    void first.then(() => (isGranted = true));
    waiter.pause();
    await holder.release();
    expect(await holderOf('stopped')).toContain(`/${waiter.pid}/`);
    const lock = await within(AT_MOST_MS, second);
    waiter.resume();
    await untilQueued(server, 'stopped', 1); // it has seen that it was too late, and waits again
    expect(isGranted).toBe(false);
    expect(await holderOf('stopped')).toBe(lock.owner);
    expect(await lock.release()).toBe(true);
    expect((await first).fencingToken).toBeGreaterThan(lock.fencingToken);
  });
});

describe('a subscription that', () => {
  it('a subscription that was cut is made anew, and locks are handed over as before [G121]', async () => {
    const [locks, others] = [await open(), await open()];
    await haveWaited('before cut', others, locks);
    const holder = await others.acquire('cut');
    const waiting = locks.acquire('cut');
    await untilQueued(server, 'cut', 1);
    await server.command('CLIENT', 'KILL', 'TYPE', 'pubsub');
    const asked = async () => ((await server.calls()).evalsha ?? 0) > 0;
    await server.resetCalls();
    await untilSubscribers(server, 1);
    await until(asked, { what: 'it asks whether it missed its turn' });
    await server.resetCalls();
    await holder.release();
    expect((await waiting).isHeld).toBe(true);
    await until(async () => (await scriptCalls(server)) === 2, { what: 'it extends what was handed over' });
  });

  it('is down when the lock is released costs nobody a turn', async () => {
    const proxy = await TcpProxy.start(server.port);
    onTestFinished(() => proxy.stop());
    const [locks, others] = [await openLocks({ redis: proxy.url, commandTimeoutMs: 5_000 }), await open()];
    await haveWaited('before down', others, locks);
    const holder = await others.acquire('down');
    const waiting = locks.acquire('down', { waitMs: 60_000 });
    await untilQueued(server, 'down', 1);
    proxy.refuse();
    proxy.cut();
    await untilSubscribers(server, 0);
    await holder.release();
    expect(await server.keys('lock:{down}*')).toEqual([]); // nobody heard, so it is free
    await proxy.accept();
    expect((await within(AT_MOST_MS, waiting)).isHeld).toBe(true);
  });

  it('is not allowed leaves who waits to ask from time to time', async () => {
    await server.command('ACL', 'SETUSER', 'deaf', 'on', '>secret', 'allkeys', 'resetchannels', 'allcommands');
    const redis = { port: server.port, host: '127.0.0.1', username: 'deaf', password: 'secret' };
    const [locks, others] = [await openLocks({ redis }), await openLocks({ redis })];
    const holder = await others.acquire('deaf');
    const waiting = locks.acquire('deaf');
    await until(async () => ((await locks.inspect('deaf'))?.waiters ?? 0) === 1, { what: 'it waits' });
    await holder.release();
    expect((await within(AT_MOST_MS, waiting)).isHeld).toBe(true);
    expect(await queued(server, 'deaf')).toBe(0);
  });
});

describe('those who wait in several services are all served after', () => {
  const SETTINGS = { commandTimeoutMs: 5_000 };

  /** @returns what settles when all have had their turn, one at a time */
  async function crowd(key: string, url: string, at = server) {
    const services = await Promise.all([1, 2, 3].map(() => openLocks({ redis: url, ...SETTINGS })));
    const holding = await openLocks({ redis: url, ...SETTINGS });
    const holder = await holding.acquire(key);
    let [inside, most] = [0, 0];
    const calls = services.flatMap((locks) =>
      [1, 2].map(() =>
        locks.withLock(key, { waitMs: 60_000, onLost: 'ignore' }, async () => {
          most = Math.max(most, ++inside);
          await Promise.resolve();
          inside--;
        }),
      ),
    );
    await untilQueued(at, key, 3);
    return { holding, holder, served: Promise.all(calls).then(() => most) };
  }

  it('FLUSHALL', async () => {
    const { served } = await crowd('flushed', server.url);
    await server.command('FLUSHALL');
    expect(await within(AT_MOST_MS, served)).toBe(1);
  });

  it('the loss of the queue alone', async () => {
    const { holder, served } = await crowd('no-queue', server.url);
    await server.command('DEL', 'lock:{no-queue}:queue');
    await holder.release();
    expect(await within(AT_MOST_MS, served)).toBe(1);
  });

  it('the waiters of a lock that was deleted by hand are all served, though its next holder did not see them and woke none', async () => {
    const { served } = await crowd('deleted', server.url);
    const newcomer = await openLocks({ redis: server.url, ...SETTINGS });
    await until(
      async () => {
        await server.command('DEL', 'lock:{deleted}');
        const lock = await newcomer.acquire('deleted', { waitMs: 0 }).catch(() => undefined); // a waiter may have been faster
        return lock?.release();
      },
      { what: 'it took the lock' },
    );
    expect(await within(AT_MOST_MS, served)).toBe(1);
  });

  it('SCRIPT FLUSH', async () => {
    const { holder, served } = await crowd('script-flush', server.url);
    await server.command('SCRIPT', 'FLUSH');
    await holder.release();
    expect(await within(AT_MOST_MS, served)).toBe(1);
  });

  it('the waiters of several services are all served after a restart that lost everything [G122]', async () => {
    const restarted = await RedisServer.start();
    onTestFinished(() => restarted.stop());
    const { served } = await crowd('restarted', restarted.url, restarted);
    await restarted.restart();
    expect(await within(AT_MOST_MS, served)).toBe(1);
  });

  it('the waiters of several services are all served after a failover to a replica, which knows the queue [G123]', async () => {
    const primary = await RedisServer.start();
    const replica = await RedisServer.start({ args: ['--replicaof', `127.0.0.1 ${primary.port}`] });
    const proxy = await TcpProxy.start(primary.port);
    onTestFinished(() => Promise.all([proxy.stop(), primary.stop(), replica.stop()]).then(() => {}));
    const linked = async () => String(await replica.command('INFO', 'replication')).includes('link_status:up');
    await until(linked, { what: 'the replica follows' });
    const { holding, holder, served } = await crowd('failover', proxy.url, primary);
    await untilQueued(replica, 'failover', 3);
    await primary.kill();
    await replica.command('REPLICAOF', 'NO', 'ONE');
    proxy.retarget(replica.port);
    await untilSubscribers(replica, 3);
    await until(() => holding.isLocked('failover').catch(() => false), { what: 'its holder is connected, too' });
    expect(await holder.release()).toBe(true);
    expect(await within(AT_MOST_MS, served)).toBe(1);
  });
});
