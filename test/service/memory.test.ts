import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { Lock, LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { COUNTER } from '../support/stored.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

it('a lock whose handle is garbage is extended no more, with a warning, unless another call holds it, too [G1007]', async () => {
  const locks = await openLocks({ memory: true, ttlMs: 300 });
  const warned: [string, string][] = [];
  locks.events$.subscribe((event) => event.type === 'warning' && warned.push([event.key, event.message]));
  const forget = async (key: string) => void (await locks.acquire(key));
  const isWarned = (key: string) =>
    until(() => (collectGarbage(), warned.some(([each]) => each === key)), { what: `it is said of "${key}"` });
  const kept = await locks.acquire('kept');
  await forget('forgotten');
  await isWarned('forgotten');
  await until(async () => !(await locks.isLocked('forgotten')), { what: 'it has ended' });
  await locks.withLock('nested', async (outer) => {
    await forget('nested');
    await isWarned('nested');
    const { remainingMs } = outer;
    await until(() => outer.remainingMs < remainingMs - 50, { what: 'a while' });
    await until(() => outer.remainingMs > remainingMs - 50, { what: 'an extension' });
  });
  expect(await locks.isLocked('nested')).toBe(false);
  expect(await kept.release()).toBe(true);
  const said = expect.stringContaining('was never released') as string;
  expect(warned).toEqual([
    ['forgotten', said],
    ['nested', said],
  ]);
  expect(locks.size).toBe(0);
});

it('a lock whose handle is garbage does not hold up the end of the application [G1059]', async () => {
  const locks = await openLocks({ memory: true, ttlMs: 60_000, shutdownTimeoutMs: 600_000 });
  let isWarned = false;
  locks.events$.subscribe((event) => (isWarned ||= event.type === 'warning'));
  await (async () => void (await locks.acquire('forgotten')))();
  await until(() => (collectGarbage(), isWarned), { what: 'it is said' });
  await locks.onModuleDestroy();
  await locks.beforeApplicationShutdown();
  expect(await locks.isLocked('forgotten')).toBe(false);
});

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

/** Does the work for each of `count` different keys, some at a time. */
async function forKeys(name: string, count: number, work: (key: string) => Promise<unknown>): Promise<void> {
  for (let start = 0; start < count; start += 200) {
    const keys = Array.from({ length: 200 }, (_, index) => `${name} ${start + index} ${'x'.repeat(200)}`);
    await Promise.all(keys.map(work));
  }
}

function heapUsed(): number {
  collectGarbage();
  return process.memoryUsage().heapUsed;
}

describe('a service keeps nothing', () => {
  it('a service keeps nothing of 10 000 different keys, once each [G130]', async () => {
    const locks = await openLocks({ redis: server.url });
    const once = (key: string) => locks.withLock(key, (lock) => lock.assertHeld());
    await forKeys('warm-up', 2_000, once);
    const before = heapUsed();
    await forKeys('once', 10_000, once);
    expect(locks.size).toBe(0);
    expect((heapUsed() - before) / 10_000).toBeLessThan(150); // bytes: less than the key alone
  });

  it('of keys that were contended in vain', async () => {
    const [locks, others] = [await openLocks({ redis: server.url }), await openLocks({ redis: server.url })];
    const inVain = async (key: string) => {
      await others.acquire(key);
      const waits = [locks.tryAcquire(key), locks.acquire(key, { waitMs: 20 }).catch(() => null)];
      expect(await Promise.all(waits)).toEqual([null, null]);
    };
    await forKeys('in-vain', 400, inVain);
    await until(() => locks.size === 0, { what: 'the last attempts have ended' });
  });

  it('of leases that were lost', async () => {
    const locks = await openLocks({ redis: server.url, watchdog: false });
    const lost: Lock[] = [];
    await forKeys('lost', 400, async (key) => lost.push(await locks.acquire(key, { ttlMs: 50 })));
    await until(() => lost.every((lock) => !lock.isHeld), { what: 'all are lost' });
    await until(() => locks.size === 0, { what: 'nothing is kept' });
    expect(await Promise.all(lost.map((lock) => lock.release()))).toEqual(lost.map(() => false));
    expect(locks.size).toBe(0);
  });

  it('of 1 000 waiters that were aborted, some in the queue and one contending', async () => {
    const [locks, others] = [await openLocks({ redis: server.url }), await openLocks({ redis: server.url })];
    const other = await others.acquire('aborted');
    const controller = new AbortController();
    const waits = Array.from({ length: 1_000 }, () => locks.acquire('aborted', { signal: controller.signal }));
    const settled = Promise.allSettled(waits);
    await until(async () => (await locks.inspect('aborted'))?.waiters === 1_000, { what: 'all wait' });
    controller.abort();
    expect((await settled).filter(({ status }) => status === 'fulfilled')).toEqual([]);
    await until(() => locks.size === 0, { what: 'the last attempt has ended' });
    await other.release();
    expect((await locks.acquire('aborted')).isHeld).toBe(true);
  });

  it('of calls that Redis could not serve', async () => {
    const own = await RedisServer.start();
    const locks = await openLocks({ redis: own.url, commandTimeoutMs: 50 });
    await own.kill();
    const calls = Array.from({ length: 400 }, (_, index) => locks.acquire(`unserved ${index % 20}`));
    const settled = await Promise.allSettled(calls);
    expect(settled.filter(({ status }) => status === 'fulfilled')).toEqual([]);
    expect(locks.size).toBe(0);
    await own.stop();
  });

  it('of the earlier runs of a job that plans its next run from within', async () => {
    const locks = await openLocks({ memory: true });
    const runs: WeakRef<Lock>[] = [];
    const kept = () => {
      collectGarbage();
      return runs.filter((lock) => lock.deref()).length;
    };
    let running: Promise<void> | undefined;
    const run = () => {
      running = locks.withLock('job', async (lock) => {
        runs.push(new WeakRef(lock));
        if (runs.length < 50) setImmediate(run);
        else await until(() => kept() < 5, { what: 'the locks of earlier runs are collected' });
      });
    };
    run();
    await until(() => runs.length === 50, { what: 'the last run has begun' });
    await running;
  });
});

describe('Redis keeps nothing', () => {
  it('Redis keeps one fencing counter, without a ttl, when 10 000 different keys have been locked [G131]', async () => {
    await server.command('FLUSHALL');
    const locks: LockService = await openLocks({ redis: server.url });
    await forKeys('ends', 10_000, (key) => locks.withLock(key, () => {}));
    expect(await server.keys()).toEqual([COUNTER]);
    expect(await server.command('PTTL', COUNTER)).toBe(-1);
  });
});
