import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { Lock, LockService, Permit } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { randomOf } from '../support/random.js';
import { serverOfFile } from '../support/stage.js';

const redis = await serverOfFile();

/**
 * A process tells how many of its calls wait each second, or with each extension of its lock, a third of the ttl after the last; the rest is for
 * a command or two. In milliseconds.
 */
const TOLD_WITHIN_MS = 1_200;
const TTL_MS = 2_000;
const KEYS = ['a', 'b', 'c'];
const STEPS = 60;

const beginningOf = (owner: string) => owner.slice(0, owner.lastIndexOf('/'));

/** A process, and what it has asked for. */
class Caller {
  readonly #giveUp = new Set<AbortController>();
  readonly #held = new Set<Lock | Permit>();

  private constructor(
    readonly locks: LockService,
    readonly name: string,
  ) {}

  static async open(fair: boolean): Promise<Caller> {
    const locks = await openLocks({ redis: redis.url, ttlMs: TTL_MS, fair, cohortPasses: 3 });
    return new Caller(locks, await locks.withLock(`of ${Math.random()}`, ({ owner }) => beginningOf(owner)));
  }

  asks(key: string, mode: number): void {
    const giveUp = new AbortController();
    const options = { waitMs: 600_000, signal: giveUp.signal };
    this.#giveUp.add(giveUp);
    void this.#acquire(key, mode, options)
      .then(
        (lock) => this.#held.add(lock),
        () => {},
      )
      .then(() => this.#giveUp.delete(giveUp));
  }

  givesUp(): void {
    const [first] = this.#giveUp;
    first?.abort();
  }

  releases(): void {
    const [first] = this.#held;
    if (!first) return;
    this.#held.delete(first);
    void first.release();
  }

  #acquire(key: string, mode: number, options: { waitMs: number; signal: AbortSignal }): Promise<Lock | Permit> {
    if (mode === 0) return this.locks.acquirePermits(key, { ...options, limit: 2 });
    return this.locks.acquire(key, { ...options, mode: mode === 1 ? 'shared' : 'exclusive' });
  }
}

/** The tickets in the queue of a lock, as Redis has them. */
async function placesOf(key: string): Promise<string[]> {
  const entries = (await redis.command('ZRANGE', `lock:{${key}}:queue`, 0, '+inf', 'BYSCORE')) as string[];
  return entries.map((entry) => entry.split(' ')[2]!.replace(/~\d+$/, ''));
}

/** Whoever is shown had a place when it was looked at, or just before, or just after. */
async function checkPlaces(key: string, locks: LockService): Promise<void> {
  const before = await placesOf(key);
  const shown = (await locks.inspect(key))?.waitingProcesses ?? [];
  const places = [...before, ...(await placesOf(key))];
  for (const { owner } of shown) expect(places).toContain(owner);
}

/** To one that has no calls each process is shown with what it counts itself, in the queue or as the holder. */
async function checkCounts(key: string, callers: readonly Caller[], viewer: LockService) {
  const { holders = [], waitingProcesses = [] } = (await viewer.inspect(key)) ?? {};
  const queued = waitingProcesses.map(({ owner, waiters }) => [beginningOf(owner), waiters] as const);
  const behind = holders.flatMap(({ holder, waiters }) =>
    waiters ? [[beginningOf(holder.owner), waiters] as const] : [],
  );
  const shown = new Map([...queued, ...behind]);
  expect(shown.size).toBe(queued.length + behind.length); // no process is counted twice
  for (const { locks, name } of callers) expect(shown.get(name) ?? 0).toBe((await locks.inspect(key))?.waiters ?? 0);
  return { queued: queued.length, behind: behind.length };
}

it.each([
  ['by default', false],
  ['in fair mode', true],
])(
  'whoever is shown as waiting has a place, and in a quiet moment as many calls as it counts itself (%s) [G935]',
  async (_, fair) => {
    const callers = await Promise.all(Array.from({ length: 5 }, () => Caller.open(fair)));
    const random = randomOf(fair ? 1 : 2);
    const oneOf = <T>(all: readonly T[]) => all[Math.floor(random() * all.length)]!;
    const viewer = await openLocks({ redis: redis.url });
    const most = { queued: 0, behind: 0 };
    for (let step = 1; step <= STEPS; step++) {
      const [caller, key, action] = [oneOf(callers), oneOf(KEYS), random()];
      if (action < 0.6) caller.asks(key, Math.floor(random() * 5));
      else if (action < 0.75) caller.givesUp();
      else caller.releases();
      await sleep(random() * 100);
      await checkPlaces(oneOf(KEYS), oneOf(callers).locks);
      if (step % 10 > 0) continue;
      await sleep(TOLD_WITHIN_MS);
      for (const each of KEYS) {
        const { queued, behind } = await checkCounts(each, callers, viewer);
        Object.assign(most, { queued: Math.max(most.queued, queued), behind: Math.max(most.behind, behind) });
      }
    }
    expect(most.queued).toBeGreaterThan(2); // several have waited for one key
    expect(most.behind).toBe(1);
  },
);
