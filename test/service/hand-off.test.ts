import { Redis, type RedisOptions } from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { validityMs } from '../../lib/core/time/clock.js';
import { openLocks } from '../support/open-locks.js';
import { subscribers, untilQueued, untilSubscribers } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { ownerOn } from '../support/stored.js';
import { isHandedTo, listens } from './hand-off.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
  await loadScripts(server);
});
afterAll(() => server.stop());

const open = () => openLocks({ redis: server.url });

/** The other service waits for the lock, and gets it. @returns how many script calls that took, from the release on */
async function handedOver(locks: LockService, others: LockService, key: string): Promise<number> {
  const holder = await locks.acquire(key);
  const waiting = others.acquire(key);
  await untilQueued(server, key, 1);
  await server.resetCalls();
  await holder.release();
  const lock = await waiting;
  expect(lock.isHeld).toBe(true);
  expect(lock.fencingToken).toBeGreaterThan(holder.fencingToken);
  await others.isLocked(key); // asked behind the extension
  const calls = await scriptCalls(server);
  await lock.release();
  return calls - 1;
}

describe('a lock that is released while another service waits', () => {
  it('is had by one release and one confirmation', async () => {
    const [locks, others] = [await open(), await open()];
    await listens([server], locks, others, 'direct');
    expect(await handedOver(locks, others, 'direct')).toBe(2);
  });

  it('is had by who came first of several services', async () => {
    const holder = await (await open()).acquire('first-come');
    const services = await Promise.all(Array.from({ length: 5 }, open));
    const order: number[] = [];
    const calls: Promise<void>[] = [];
    for (const [index, locks] of services.entries()) {
      calls.push(locks.withLock('first-come', () => void order.push(index)));
      await untilQueued(server, 'first-come', index + 1);
    }
    await holder.release();
    await Promise.all(calls);
    expect(order).toEqual([0, 1, 2, 3, 4]);
  });

  it('a lock that is handed over has the lease that the waiter asked for, whatever the grant stood for [G109]', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await locks.acquire('own-ttl', { ttlMs: 20_000 });
    const waiting = others.acquire('own-ttl', { ttlMs: 7_000, watchdog: false });
    await untilQueued(server, 'own-ttl', 1);
    await holder.release();
    const lock = await waiting;
    const inRedis = (await server.command('PTTL', 'lock:{own-ttl}')) as number;
    expect(inRedis).toBeGreaterThan(4_000);
    expect(inRedis).toBeLessThanOrEqual(7_000);
    expect(lock.remainingMs).toBeLessThanOrEqual(inRedis);
  });

  it('a lock that is handed over lasts for the ttl from when the confirmation was sent, not from when it was answered [G108]', async () => {
    const proxy = await TcpProxy.start(server.port);
    onTestFinished(() => proxy.stop());
    const client = new Redis(proxy.url);
    onTestFinished(() => client.disconnect());
    const sent: number[] = [];
    const evalsha = client.evalsha.bind(client) as (...args: unknown[]) => Promise<unknown>;
    Object.assign(client, {
      evalsha: (...args: unknown[]) => {
        sent.push(performance.now());
        return evalsha(...args);
      },
    });
    const [locks, others] = [await open(), await openLocks({ redis: client, commandTimeoutMs: 10_000 })];
    const [holder, began] = [await locks.acquire('deadline'), performance.now()];
    const waiting = others.acquire('deadline', { ttlMs: 8_000, watchdog: false });
    await untilQueued(server, 'deadline', 1);
    await sleep(100); // waiting takes its time
    const asked = sent.length;
    proxy.hold(); // what is published still comes through
    await holder.release();
    await until(() => sent.length > asked, { what: 'the waiter confirms' });
    const confirmedAt = sent[asked]!;
    await sleep(100); // so does the confirmation
    proxy.release();
    const lock = await waiting;
    const now = performance.now();
    const deadline = now + lock.remainingMs;
    expect(deadline).toBeLessThan(confirmedAt + validityMs(8_000, 0) + 5);
    expect(deadline).toBeGreaterThan(began + 100 + validityMs(8_000, 0) - 5);
  });

  it('by force is had by one command and one confirmation, too', async () => {
    const [locks, others] = [await open(), await open()];
    await listens([server], locks, others, 'by-force');
    const holder = await locks.acquire('by-force');
    const waiting = others.acquire('by-force');
    await untilQueued(server, 'by-force', 1);
    await server.resetCalls();
    expect(await locks.forceRelease('by-force')).toBe(true);
    const lock = await waiting;
    await others.isLocked('by-force');
    expect(await scriptCalls(server)).toBe(3); // with the question
    expect(holder.isHeld).toBe(false);
    expect(lock.isHeld).toBe(true);
    expect(await ownerOn(server, 'by-force')).toBe(lock.owner);
  });
});

describe('a hot key', () => {
  it.each([2, 8])(
    'costs three commands a turn among %i services that wait for it all the time [G300]',
    async (count) => {
      const services = await Promise.all(Array.from({ length: count }, open));
      let turns = 0;
      const work = async (locks: LockService, until: number) => {
        while (turns < until) await locks.withLock('hot', { waitMs: 60_000 }, () => void turns++);
      };
      const all = (until: number) => Promise.all(services.map((locks) => work(locks, until)));
      await all(50); // until they listen
      await server.resetCalls();
      turns = 0;
      await all(1_000);
      expect((await scriptCalls(server)) / turns).toBeLessThan(3.2);
    },
  );
});

describe('who waits', () => {
  it('waiters ask Redis a few times a second at most [G100]', async () => {
    const [locks, others] = [await open(), await open()];
    await handedOver(others, locks, 'few-warm');
    const holder = await others.acquire('few');
    await server.resetCalls();
    await expect(locks.acquire('few', { waitMs: 1_600 })).rejects.toThrow('held by');
    // An attempt, a place in the queue, one look after a second, and giving up the place.
    expect(await scriptCalls(server)).toBeLessThanOrEqual(5);
    await holder.release();
  });

  it('looks for itself from time to time, should its turn not be heard of', async () => {
    const [locks, others] = [await open(), await open()];
    await others.acquire('looks');
    const waiting = locks.acquire('looks');
    await untilQueued(server, 'looks', 1);
    await server.command('DEL', 'lock:{looks}'); // nobody is told
    expect((await waiting).isHeld).toBe(true);
  });
});

describe('a service listens for its turns', () => {
  let own: RedisServer;
  beforeAll(async () => {
    own = await RedisServer.start();
  });
  afterAll(() => own.stop());

  const channels = async () => (await own.command('PUBSUB', 'CHANNELS', 'lock:inbox:*')) as string[];

  it('on one connection for all its keys, from its first contention until it closes', async () => {
    const [locks, others] = [await openLocks({ redis: own.url }), await openLocks({ redis: own.url })];
    const keys = Array.from({ length: 20 }, (_, index) => `listens ${index}`);
    const held = await Promise.all(keys.map((key) => others.acquire(key)));
    await locks.withLock('free', () => {});
    expect(await subscribers(own)).toBe(0); // nobody has waited yet

    const waiting = keys.map((key) => locks.acquire(key));
    for (const key of keys) await untilQueued(own, key, 1);
    expect(await subscribers(own)).toBe(1);
    expect(await channels()).toEqual([expect.stringContaining(`/${process.pid}/`)]);

    await Promise.all(held.map((lock) => lock.release()));
    await Promise.all((await Promise.all(waiting)).map((lock) => lock.release()));
    expect(await subscribers(own)).toBe(1); // it stays for the next time
    await locks.onApplicationShutdown();
    await untilSubscribers(own, 0);
    expect(await channels()).toEqual([]);
  });

  it('beside a client that several registrations share: each has one listener for each event', async () => {
    const client = new Redis(own.url);
    onTestFinished(() => client.disconnect());
    await client.ping();
    const counts = () => client.eventNames().map((event) => [event, client.listenerCount(event)]);
    const before = counts();
    const services = await Promise.all([1, 2, 3].map(() => openLocks({ redis: client })));
    for (const event of ['ready', 'close', 'end']) expect(client.listenerCount(event)).toBeLessThanOrEqual(3);
    await Promise.all(services.map((locks) => locks.onApplicationShutdown()));
    expect(counts()).toEqual(before);
  });

  it('on a connection beside the client of the application, which is left as it was', async () => {
    const client = new Redis(own.url);
    onTestFinished(() => client.disconnect());
    await client.ping();
    const picture = () => ({
      listeners: client.eventNames().map((event) => [event, client.listenerCount(event)]),
      options: { ...client.options },
      status: client.status,
    });
    const before = picture();
    const [locks, others] = [await openLocks({ redis: client }), await openLocks({ redis: own.url })];
    const opened = picture();
    const holder = await others.acquire('beside');
    const waiting = locks.acquire('beside');
    await untilQueued(own, 'beside', 1);
    expect(picture()).toEqual(opened);
    expect(await client.client('INFO')).toContain(' sub=0 '); // its own connection does not listen
    await holder.release();
    await (await waiting).release();
    await locks.onApplicationShutdown();
    expect(picture()).toEqual(before);
    expect(await client.ping()).toBe('PONG');
    await untilSubscribers(own, 0);
  });
});

const HANDED: [string, RedisOptions][] = [
  ['RESP2', { protocol: 2 }],
  ['stringNumbers', { stringNumbers: true }],
  ['a key prefix', { keyPrefix: 'app:' }],
  ['auto-pipelining', { enableAutoPipelining: true }],
  ['no offline queue', { enableOfflineQueue: false }],
  ['no ready check', { enableReadyCheck: false }],
  ['a lazy connection', { lazyConnect: true }],
  ['no resubscription', { autoResubscribe: false }],
];

it.each(HANDED)('clients of the application may have %s: they are handed locks, too', (name, options) =>
  isHandedTo(server, `handed ${name}`, options),
);
