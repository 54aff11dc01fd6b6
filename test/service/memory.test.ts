import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { describe, expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { serverOfFile } from '../support/stage.js';
import { COUNTER } from '../support/stored.js';
import { until } from '../support/until.js';

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc') as () => void;

it('a lock whose handle was garbage-collected is no longer extended, with a warning, unless another call also holds it [G1007]', async () => {
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

it('a lock whose handle was garbage-collected does not delay the end of the application [G1059]', async () => {
  const locks = await openLocks({ memory: true, ttlMs: 60_000, shutdownTimeoutMs: 600_000 });
  let isWarned = false;
  locks.events$.subscribe((event) => (isWarned ||= event.type === 'warning'));
  await (async () => void (await locks.acquire('forgotten')))();
  await locks.withLock('other', async (other) => {
    const { remainingMs } = other;
    await until(() => other.remainingMs < remainingMs - 15_000, { what: 'a while' });
    await until(() => other.remainingMs > remainingMs - 15_000, { what: 'their extensions' });
  });
  await until(() => (collectGarbage(), isWarned), { what: 'it is reported' });
  await locks.onModuleDestroy();
  await locks.beforeApplicationShutdown();
  expect(await locks.isLocked('forgotten')).toBe(false);
});

const server = await serverOfFile();

/** Does the work for each of `count` different keys, several at a time. */
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
