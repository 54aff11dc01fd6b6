import { setTimeout as sleep } from 'node:timers/promises';
import { Cluster } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { LockEvent } from '../../lib/api/events.js';
import { openLocks as open } from '../../lib/compose/open-locks.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';
import { scriptCalls } from '../support/script-calls.js';
import { until } from '../support/until.js';
import { ownerOn } from '../support/stored.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

/** A handler runs for five times the ttl, with a server of its own: what it and others saw. */
async function runForLong() {
  const ttlMs = 1_500;
  const own = await RedisServer.start();
  const opened = await Promise.all([1, 2].map(() => open({ redis: own.url, shutdownTimeoutMs: 0 })));
  const [locks, others] = opened.map(({ service }) => service);
  let running = true;
  let tries = 0;
  const stolen: string[] = [];
  const tryAllTheTime = async () => {
    while (running) {
      const lock = await others!.tryAcquire('long', { ttlMs });
      if (lock) stolen.push(lock.owner);
      tries++;
      await sleep(5);
    }
  };
  try {
    let trying: Promise<void> | undefined;
    const heldThroughout = await locks!.withLock('long', { ttlMs }, async (lock) => {
      trying = tryAllTheTime();
      const looks: boolean[] = [];
      const endsAt = performance.now() + 5 * ttlMs;
      while (performance.now() < endsAt) {
        looks.push(lock.isHeld && (await ownerOn(own, 'long')) === lock.owner);
        await sleep(5);
      }
      running = false;
      return looks.length > 10 && looks.every(Boolean);
    });
    await trying;
    return { heldThroughout, tries, stolen };
  } finally {
    running = false;
    await Promise.all(opened.map(({ service }) => service.onApplicationShutdown()));
    await own.stop();
  }
}

/** It goes on while the other tests run: so it may have a ttl that outlasts a pause of a busy machine. */
let long: ReturnType<typeof runForLong>;
beforeAll(() => {
  long = runForLong();
  long.catch(() => {}); // told by the last test
});
afterAll(() => long.then(undefined, () => {}));

describe('with the watchdog on', () => {
  it('keeps 2 000 locks with a ttl of 3 s, in batches of many, and loses none', async () => {
    const locks = await openLocks({ redis: server.url });
    const lost: LockEvent[] = [];
    locks.events$.subscribe((event) => event.type === 'lost' && lost.push(event));
    const keys = Array.from({ length: 2_000 }, (_, index) => `batch ${index}`);
    const held = await Promise.all(keys.map((key) => locks.acquire(key, { ttlMs: 3_000 })));
    await server.resetCalls();
    await sleep(4_000); // three extensions of each
    const renewals = 3;
    expect(await scriptCalls(server)).toBeGreaterThanOrEqual((renewals * 2_000) / 100);
    expect(await scriptCalls(server)).toBeLessThanOrEqual((renewals * 2_000) / 20);
    expect(held.filter((lock) => !lock.isHeld)).toEqual([]);
    expect(lost).toEqual([]);
    await Promise.all(held.map((lock) => lock.release()));
    expect(locks.size).toBe(0);
  });

  it('extends the locks of one node of a Cluster while another node does not answer', async () => {
    const cluster = await RedisCluster.start(3);
    onTestFinished(() => cluster.stop());
    const client = new Cluster(cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })));
    onTestFinished(() => client.disconnect());
    const locks = await openLocks({ redis: client, ttlMs: 1_000 });
    const [hung, ...well] = await Promise.all(['b', 'c', 'a'].map((key) => locks.acquire(key)));
    cluster.nodes[0]!.pause();
    await until(() => !hung!.isHeld, { what: 'the lock of the node that hangs is lost' });
    const deadlines = () => well.map((lock) => performance.now() + lock.remainingMs);
    expect(well.every((lock) => lock.isHeld)).toBe(true);
    const before = deadlines();
    await until(() => deadlines().every((deadline, index) => deadline > before[index]! + 50), {
      what: 'the locks of the other nodes have been extended once more',
    });
  });
});

describe('with the watchdog off', () => {
  it('the signal of a lock without the watchdog aborts at the deadline, before Redis gives the key to others [G37]', async () => {
    const locks = await openLocks({ redis: server.url, watchdog: false, marginMs: 1_000 });
    const validityMs = 1_300 - 13 - 2 - 1_000;
    const order: string[] = [];
    setTimeout(() => order.push('50 ms before'), validityMs - 50);
    const lock = await locks.acquire('off', { ttlMs: 1_300 });
    setTimeout(() => order.push('50 ms after'), validityMs + 50);
    lock.signal.addEventListener('abort', () => order.push(`aborted, held: ${lock.isHeld}`));
    expect(order).toEqual([]);
    await until(() => lock.signal.aborted, { what: 'the signal has aborted' });
    expect(await ownerOn(server, 'off')).toBe(lock.owner);
    await until(() => order.length === 3, { what: 'both timers have fired' });
    expect(order).toEqual(['50 ms before', 'aborted, held: false', '50 ms after']);
    expect(lock.signal.reason).toMatchObject({ code: 'LOCK_LOST', key: 'off', reason: 'expired' });
  });

  it('sends no extension, and lets others in after the ttl, with a greater fencing token', async () => {
    const [locks, others] = [await openLocks({ redis: server.url }), await openLocks({ redis: server.url })];
    let second: { fencingToken: number } | undefined;
    let first: { fencingToken: number } | undefined;
    const working = locks.withLock('overlap', { ttlMs: 300, watchdog: false }, async (lock) => {
      first = lock;
      second = await others.acquire('overlap', { waitMs: 10_000 });
      expect(lock.isHeld).toBe(false);
      return 'done';
    });
    await expect(working).rejects.toMatchObject({
      code: 'LOCK_LOST',
      reason: 'expired',
      outcome: { status: 'fulfilled', value: 'done' },
    });
    expect(second!.fencingToken).toBeGreaterThan(first!.fencingToken);
  });

  it('the error of work that fails after the loss of its lock is kept in the outcome [G42]', async () => {
    const locks = await openLocks({ redis: server.url });
    const failure = new Error('from the work');
    const working = locks.withLock('fails', { ttlMs: 200, watchdog: false }, async (lock) => {
      await until(() => lock.signal.aborted, { what: 'the lock is lost' });
      throw failure;
    });
    await expect(working).rejects.toMatchObject({
      reason: 'expired',
      outcome: { status: 'rejected', reason: failure },
    });
  });

  it("a call with onLost: 'ignore' settles as its work does [G43]", async () => {
    const locks = await openLocks({ redis: server.url, onLost: 'ignore' });
    const untilLost = (result: () => string) =>
      locks.withLock('ignored', { ttlMs: 50, watchdog: false }, async (lock) => {
        await until(() => !lock.isHeld, { what: 'the lock is lost' });
        return result();
      });
    expect(await untilLost(() => 'value')).toBe('value');
    const fails = untilLost(() => {
      throw new Error('from the work');
    });
    await expect(fails).rejects.toThrow('from the work');
  });
});

it('a lock has exactly one holder while a handler runs for five times the ttl, though others try all the time [G1]', async () => {
  const { heldThroughout, tries, stolen } = await long;
  expect(heldThroughout).toBe(true);
  expect(tries).toBeGreaterThan(10);
  expect(stolen).toEqual([]);
});
