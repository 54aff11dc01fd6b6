import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { bytesLeftBy, collectGarbage } from '../support/heap.js';
import { openLocks } from '../support/open-locks.js';
import { serverOfFile } from '../support/stage.js';
import { COUNTER } from '../support/stored.js';
import { until } from '../support/until.js';

/** Collects garbage before each look, but looks seldom. */
function untilCollected(condition: () => boolean, what: string): Promise<boolean> {
  const look = async () => {
    await sleep(50);
    collectGarbage();
    return condition();
  };
  return until(look, { what });
}

it('a lock whose handle was garbage-collected is no longer extended, with a warning, unless another call also holds it [G1007]', async () => {
  const locks = await openLocks({ memory: true, ttlMs: 300 });
  const warned: [string, string][] = [];
  locks.events$.subscribe((event) => event.type === 'warning' && warned.push([event.key, event.message]));
  const forget = async (key: string) => void (await locks.acquire(key));
  const isWarned = (key: string) =>
    untilCollected(() => warned.some(([each]) => each === key), `it is said of "${key}"`);
  const kept = await locks.acquire('kept');
  await forget('forgotten');
  await isWarned('forgotten');
  await until(async () => !(await locks.isLocked('forgotten')), { what: 'it has ended' });
  await locks.withLock('nested', async (outer) => {
    await forget('nested');
    await isWarned('nested');
    await sleep(600);
    expect(outer.isHeld).toBe(true);
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
  await untilCollected(() => isWarned, 'it is reported');
  await locks.onModuleDestroy();
  await locks.beforeApplicationShutdown();
  expect(await locks.isLocked('forgotten')).toBe(false);
});

const server = await serverOfFile();

/** Locks this many different keys, once each, several at a time. */
async function lockAll(locks: LockService, name: string, count: number): Promise<void> {
  for (let start = 0; start < count; start += 200) {
    const keys = Array.from({ length: 200 }, (_, index) => `${name} ${start + index} ${'x'.repeat(200)}`);
    await Promise.all(keys.map((key) => locks.withLock(key, (lock) => lock.assertHeld())));
  }
}

it('a service keeps nothing of 6 000 different keys, once each [G130]', async () => {
  const locks = await openLocks({ redis: server.url });
  const bytesLeft = await bytesLeftBy((round) => lockAll(locks, `round ${round}`, 1_000));
  expect(locks.size).toBe(0);
  expect(bytesLeft / 1_000).toBeLessThan(150); // less than the key alone
});

it('Redis keeps one fencing counter, without a ttl, when 1 000 different keys have been locked [G131]', async () => {
  await server.command('FLUSHALL');
  await lockAll(await openLocks({ redis: server.url }), 'ends', 1_000);
  expect(await server.keys()).toEqual([COUNTER]);
  expect(await server.command('PTTL', COUNTER)).toBe(-1);
});
