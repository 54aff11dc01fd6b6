import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { queued, subscribers, untilQueued, untilSubscribers } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { ownerOn } from '../support/stored.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { crowd, haveWaited, turnOf } from './waiters.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const open = () => openLocks({ redis: server.url });
const start = () => LockProcess.start({ redis: server.url });
const holderOf = (key: string) => ownerOn(server, key);

/** One holds the lock, a process waits for it, and a service behind that. */
async function queueOf(key: string) {
  const [waiter, locks, others] = [await start(), await open(), await open()];
  const turnOfProcess = (each: string) => waiter.acquire(each, { waitMs: 60_000 }).then(() => waiter.release(each));
  await haveWaited(server, `before ${key}`, others, turnOfProcess, turnOf(locks));
  const holder = await others.acquire(key);
  const first = waiter.acquire(key, { waitMs: 60_000 });
  await untilQueued(server, key, 1);
  const second = locks.acquire(key, { waitMs: 60_000 });
  await untilQueued(server, key, 2);
  return { holder, waiter, first, second };
}

describe('a waiter that', () => {
  it('aborts in its process leaves the queue', async () => {
    const { waiter, first, holder, second } = await queueOf('aborts-process');
    const aborted = first.catch((error: unknown) => error);
    await waiter.abort('aborts-process');
    expect(String(await aborted)).toContain('aborted');
    await untilQueued(server, 'aborts-process', 1);
    await holder.release();
    await second;
  });

  it('a waiter that was killed while it waited is passed over by the same release [G118]', async () => {
    const { waiter, holder, second } = await queueOf('killed');
    const listening = await subscribers(server);
    await waiter.kill();
    await untilSubscribers(server, listening - 1);
    expect(await queued(server, 'killed')).toBe(2); // it had no time to say so
    await holder.release();
    const owner = await holderOf('killed');
    const lock = await second;
    expect(owner).toBe(lock.owner);
    expect(lock.isHeld).toBe(true);
    expect(await queued(server, 'killed')).toBe(0);
  });

  it('was killed while it waited leaves Redis by itself, also when nobody else comes', async () => {
    const [waiter, others] = [await start(), await open()];
    await others.acquire('left-behind');
    void waiter.acquire('left-behind');
    await untilQueued(server, 'left-behind', 1);
    await waiter.kill();
    const leftMs = (await server.command('PTTL', 'lock:{left-behind}:queue')) as number;
    expect(leftMs).toBeGreaterThan(0);
    expect(leftMs).toBeLessThanOrEqual(10_000);
  });

  it('a waiter that is killed between grant and confirmation delays the next one for as long as the grant stands [G119]', async () => {
    const { waiter, holder, second } = await queueOf('killed-granted');
    waiter.pause();
    await holder.release();
    expect(await holderOf('killed-granted')).toContain(`/${waiter.pid}/`);
    expect(await server.command('PTTL', 'lock:{killed-granted}')).toBeLessThanOrEqual(2_000);
    await waiter.kill();
    const lock = await second;
    expect(lock.isHeld).toBe(true);
  });

  it('a waiter that is stopped between grant and confirmation does not hold the lock when it wakes up [G120]', async () => {
    const { waiter, holder, first, second } = await queueOf('stopped');
    let isGranted = false;
    void first.then(() => (isGranted = true));
    waiter.pause();
    await holder.release();
    expect(await holderOf('stopped')).toContain(`/${waiter.pid}/`);
    const lock = await second;
    waiter.resume();
    await untilQueued(server, 'stopped', 1); // it has seen that it was too late, and waits again
    expect(isGranted).toBe(false);
    expect(await holderOf('stopped')).toBe(lock.owner);
    expect(await lock.release()).toBe(true);
    expect((await first).fencingToken).toBeGreaterThan(lock.fencingToken);
  });
});

it('a subscription that is not allowed leaves who waits to ask from time to time', async () => {
  await server.command('ACL', 'SETUSER', 'deaf', 'on', '>secret', 'allkeys', 'resetchannels', 'allcommands');
  const redis = { port: server.port, host: '127.0.0.1', username: 'deaf', password: 'secret' };
  const [locks, others] = [await openLocks({ redis }), await openLocks({ redis })];
  const holder = await others.acquire('deaf');
  const waiting = locks.acquire('deaf');
  await until(async () => ((await locks.inspect('deaf'))?.waiters ?? 0) === 1, { what: 'it waits' });
  await holder.release();
  expect((await waiting).isHeld).toBe(true);
  expect(await queued(server, 'deaf')).toBe(0);
});

it('the waiters of several services are all served after a failover to a replica, which knows the queue [G123]', async () => {
  const primary = await RedisServer.start();
  const replica = await RedisServer.start({ args: ['--replicaof', `127.0.0.1 ${primary.port}`] });
  const proxy = await TcpProxy.start(primary.port);
  onTestFinished(() => Promise.all([proxy.stop(), primary.stop(), replica.stop()]).then(() => {}));
  const linked = async () => String(await replica.command('INFO', 'replication')).includes('link_status:up');
  await until(linked, { what: 'the replica follows' });
  const { holding, holder, served } = await crowd(primary, 'failover', proxy.url);
  await untilQueued(replica, 'failover', 3);
  await primary.kill();
  await replica.command('REPLICAOF', 'NO', 'ONE');
  proxy.retarget(replica.port);
  await untilSubscribers(replica, 3);
  await until(() => holding.isLocked('failover').catch(() => false), { what: 'its holder is connected, too' });
  expect(await holder.release()).toBe(true);
  expect(await served).toBe(1);
});
