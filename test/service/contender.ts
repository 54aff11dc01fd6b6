import { setTimeout as sleep } from 'node:timers/promises';
import { onTestFinished } from 'vitest';
import type { LockService } from '../../lib/index.js';
import { until } from '../support/until.js';

/** How long a contender holds its lock. */
export const HOLD_MS = 10;

/** Takes the lock again and again, with pauses in between, until the test has finished. */
export function contender(locks: LockService, key: string, pauseMs = 0): { turns: number } {
  const count = { turns: 0 };
  let isOver = false;
  const contend = async () => {
    while (!isOver) {
      await locks.withLock(key, { waitMs: 60_000 }, () => sleep(HOLD_MS));
      count.turns++;
      if (pauseMs > 0) await sleep(pauseMs);
    }
  };
  const contending = contend().catch(() => {}); // the end of the test has ended it
  onTestFinished(async () => {
    isOver = true;
    await contending;
  });
  return count;
}

/** How many turns the victim had while each of the others had this many. */
export async function shareOf(victim: { turns: number }, others: { turns: number }[], turns: number): Promise<number> {
  const before = victim.turns;
  const goals = others.map((other) => other.turns + turns);
  await until(() => others.every((other, index) => other.turns >= goals[index]!), { what: `${turns} turns of each` });
  return (victim.turns - before) / turns;
}
