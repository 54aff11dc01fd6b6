import { expect } from 'vitest';
import type { LockService } from '../../lib/index.js';
import { randomOf } from '../support/random.js';
import { until } from '../support/until.js';

/** Lets callers of all services take random sets of a few keys; every fourth call does not wait. */
async function takeRandomSets(services: readonly LockService[], keys: readonly string[], count: number) {
  const random = randomOf(5);
  const holders = new Map<string, number>();
  const refusals: string[] = [];
  let asked = 0;
  let most = 0;
  let served = 0;
  const take = async (locks: LockService) => {
    const some = [...keys].sort(() => random() - 0.5).slice(0, 2);
    const waitMs = asked++ % 4 === 0 ? 0 : 10_000;
    const work = async () => {
      for (const key of some) {
        holders.set(key, (holders.get(key) ?? 0) + 1);
        most = Math.max(most, holders.get(key)!);
      }
      await new Promise(setImmediate);
      for (const key of some) holders.set(key, holders.get(key)! - 1);
      served++;
    };
    await locks.withLock(some, { waitMs }, work).catch(({ code }: { code: string }) => refusals.push(code));
  };
  const caller = async (locks: LockService) => {
    for (let turn = 0; turn < count; turn++) await take(locks);
  };
  await Promise.all(services.flatMap((locks) => [caller(locks), caller(locks), caller(locks)]));
  return { most, served, refusals, asked };
}

/** Random sets exclude each other by key, all end, and nothing is left. */
export async function expectSound(
  services: readonly LockService[],
  keys: readonly string[],
  count: number,
): Promise<void> {
  const { most, served, refusals, asked } = await takeRandomSets(services, keys, count);
  expect(most).toBe(1);
  expect(asked).toBe(3 * count * services.length);
  expect(served + refusals.length).toBe(asked);
  expect(refusals.length).toBeLessThanOrEqual(asked / 4 + 1);
  expect(refusals.filter((code) => code !== 'LOCK_CONTENDED')).toEqual([]);
  for (const locks of services) {
    await until(() => locks.size === 0, { what: 'nothing is held any more' });
    await (await locks.acquireAll(keys)).release();
  }
}
