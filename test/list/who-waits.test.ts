import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { Lock, LockService, Permit, RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { randomOf } from '../support/random.js';
import { serversOfFile } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';

const servers = await serversOfFile(3);
const redis = servers[0]!;

/**
 * A process reports how many of its calls wait each second, or with each extension of its lock, a third of the ttl
 * after the last one; the rest is for a command or two. In milliseconds.
 */
const TOLD_WITHIN_MS = 1_200;

const STORES: [name: string, options: () => RedisLockModuleOptions][] = [
  ['on one Redis', () => ({ redis: redis.url })],
  ['in fair mode', () => ({ redis: redis.url, fair: true })],
  ['on a Redlock', () => ({ redlock: servers.map(({ url }) => url), admission: false })],
];

/** The beginning of the owner values of a service: for the store it is a process. */
async function processOf(locks: LockService): Promise<string> {
  return locks.withLock(`of ${Math.random()}`, ({ owner }) => beginningOf(owner));
}
const beginningOf = (owner: string) => owner.slice(0, owner.lastIndexOf('/'));

const waitingFor = async (locks: LockService, key: string) =>
  (await locks.inspect(key))!.waitingProcesses!.map(({ owner }) => beginningOf(owner));

it.each<[string, RedisLockModuleOptions['fair']]>([
  ['by default', false],
  ['in fair mode', true],
])('inspect and list show the processes that wait, each once, in order (%s) [G434]', async (mode, fair) => {
  const options = { redis: redis.url, fair };
  const all = await Promise.all([openLocks(options), openLocks(options), openLocks(options)]);
  const [holding, second, third] = all;
  const names = await Promise.all(all.map(processOf));
  const key = `hot ${mode}`;
  const lock = await holding!.acquire(key);
  expect(await waitingFor(holding!, key)).toEqual([]);

  const giveUp = new AbortController();
  const first = second!.acquire(key, { signal: giveUp.signal }).catch(() => {});
  await untilQueued(redis, key, 1);
  const later = [third!.acquire(key), third!.acquire(key)];
  await untilQueued(redis, key, 2);
  expect(await waitingFor(holding!, key)).toEqual([names[1], names[2]]);
  const [listed] = (await third!.list({ match: key })).locks;
  expect(listed).toMatchObject({ key, waiters: 2, waitingProcesses: [{ pid: process.pid }, { pid: process.pid }] });
  expect(listed!.waitingProcesses!.map(({ owner }) => beginningOf(owner))).toEqual([names[1], names[2]]);

  giveUp.abort();
  await first;
  await untilQueued(redis, key, 1);
  expect(await waitingFor(holding!, key)).toEqual([names[2]]);
  await lock.release();
  for (const each of later) await (await each).release();
});

it.each(STORES)(
  'inspect and list show how many calls of each process wait, at most a second late (%s) [G933]',
  async (where, options) => {
    const [holding, second, third] = await Promise.all([1, 2, 3].map(() => openLocks(options())));
    const key = `counted ${where}`;
    const lock = await holding!.acquire(key);
    const giveUp = new AbortController();
    const wait = (locks: LockService, signal?: AbortSignal) => locks.acquire(key, { waitMs: 60_000, signal });
    const leaving = [1, 2, 3].map(() => wait(second!, giveUp.signal).catch(() => {}));
    const staying = [wait(second!), wait(third!), wait(third!)];
    const shown = async () =>
      new Map(
        (await holding!.inspect(key))!.waitingProcesses!.map(({ owner, waiters }) => [beginningOf(owner), waiters]),
      );
    const [ofSecond, ofThird] = await Promise.all([processOf(second!), processOf(third!)]);
    await sleep(TOLD_WITHIN_MS);
    expect(await shown()).toEqual(
      new Map([
        [ofSecond, 4],
        [ofThird, 2],
      ]),
    );
    giveUp.abort();
    await Promise.all(leaving);
    await sleep(TOLD_WITHIN_MS);
    expect(await shown()).toEqual(
      new Map([
        [ofSecond, 1],
        [ofThird, 2],
      ]),
    );
    await lock.release();
    await Promise.all(staying.map(async (waiting) => (await waiting).release()));
  },
);

it('a process that is silent while others show that they wait is not shown as waiting [G435]', async () => {
  const [holding, waiting] = [await openLocks({ redis: redis.url }), await openLocks({ redis: redis.url })];
  const key = 'silent';
  const lock = await holding.acquire(key);
  const waits = waiting.acquire(key);
  await untilQueued(redis, key, 1);
  const queue = `lock:{${key}}:queue`;
  const gone = { channel: 'lock:inbox:3:gone/7/process', ticket: 'gone/7/process/1' };
  await redis.command('ZADD', queue, 1, `g ${gone.channel} ${gone.ticket}`);
  await redis.command('ZADD', queue, 2, `x ${gone.channel} of a later version`);
  const signAt = (ms: number) => redis.command('ZADD', queue, -(Date.now() + ms) * 1_000, `h ${gone.channel}`);
  await signAt(-500);
  const shown = await holding.inspect(key);
  expect(shown!.waitingProcesses).toEqual([
    { owner: gone.ticket, host: 'gone', pid: 7 }, // of a version that does not tell how many of its calls wait
    expect.objectContaining({ pid: process.pid, waiters: 1 }),
  ]);
  await redis.command('SET', `lock:{${key}}`, 'another@1700000000000000=', 'PX', 60_000, 'GET').then(async (value) => {
    expect(await waitingFor(holding, key)).toHaveLength(2); // also for a lock that is kept
    await redis.command('SET', `lock:{${key}}`, value as string, 'PX', 60_000);
  });
  await signAt(-4_000);
  expect(await waitingFor(holding, key)).toEqual([await processOf(waiting)]);

  await redis.command('DEL', queue);
  await redis.command('SET', queue, 'of another program');
  expect(await waitingFor(holding, key)).toEqual([]);
  await redis.command('DEL', queue);
  await lock.release();
  await (await waits).release();
});

it('the processes that wait for a lock of a Redlock are collected from all of its nodes [G436]', async () => {
  const options = { redlock: servers.map(({ url }) => url), admission: false, commandTimeoutMs: 1_000 };
  const all = await Promise.all([openLocks(options), openLocks(options), openLocks(options)]);
  const names = await Promise.all(all.map(processOf));
  const key = 'quorum';
  const lock = await all[0]!.acquire(key);
  // If it is not yet granted, the next attempt would be.
  await until(async () => (await Promise.all(servers.map((server) => ownerOn(server, key)))).every(Boolean), {
    what: 'all nodes have granted',
  });
  const onAll = (count: number) =>
    until(async () => (await Promise.all(servers.map((server) => queued(server, key)))).every((n) => n === count), {
      what: `${count} wait on all nodes`,
    });
  const second = all[1]!.acquire(key);
  await onAll(1);
  const third = all[2]!.acquire(key);
  await onAll(2);
  expect(await waitingFor(all[0]!, key)).toEqual([names[1], names[2]]);
  const [place] = (await redis.command('ZRANGE', `lock:{${key}}:queue`, 0, '+inf', 'BYSCORE')) as string[];
  await redis.command('ZREM', `lock:{${key}}:queue`, place!);
  expect(await waitingFor(all[0]!, key)).toEqual(expect.arrayContaining([names[1], names[2]]));
  const [listed] = (await all[0]!.list({ match: key })).locks;
  expect(listed!.waitingProcesses).toHaveLength(2);
  await lock.release();
  await Promise.all([second, third].map(async (waiting) => (await waiting).release())); // either may be the first
});

const HOLDER_TTL_MS = 6_000;
/** The first extension comes within a third of the ttl; the rest is for a command or two. In milliseconds. */
const EXTENDED_WITHIN_MS = HOLDER_TTL_MS / 3 + 100;
/** After this time nothing older is shown. In milliseconds. */
const SHOWN_MS = HOLDER_TTL_MS / 2 + 100;

let keys = 0;
const freshKey = () => `behind ${++keys}`;
/** A waiting call, and a way to make it give up. */
function wait(locks: LockService, key: string, mode: 'exclusive' | 'shared' = 'exclusive') {
  const giveUp = new AbortController();
  const lock = locks.acquire(key, { waitMs: 600_000, ttlMs: HOLDER_TTL_MS, mode, signal: giveUp.signal });
  lock.catch(() => {});
  return { lock, giveUp: () => giveUp.abort() };
}
const behind = async (locks: LockService, key: string) => (await locks.inspect(key))!.holders[0]!.waiters;
const isTold = (key: string) => redis.command('EXISTS', `lock:{${key}}:calls`);

it.each(STORES)(
  "other processes see how many calls wait behind a lock in its holder's process, at most half a ttl late (%s) [G936]",
  async (_where, options) => {
    const [holding, other] = [await openLocks(options()), await openLocks(options())];
    const key = freshKey();
    const lock = await holding.acquire(key, { ttlMs: HOLDER_TTL_MS });
    const calls = [1, 2, 3].map(() => wait(holding, key));
    await sleep(100);
    expect(await behind(holding, key)).toBe(3); // the process itself knows it at once
    expect(await behind(other, key)).toBeUndefined();
    await sleep(EXTENDED_WITHIN_MS);
    expect(await behind(other, key)).toBe(3);
    const [listed] = (await other.list({ match: key })).locks;
    expect(listed).toMatchObject({ key, waiters: 0, waitingProcesses: [], holders: [{ waiters: 3 }] });

    calls[0]!.giveUp();
    calls[1]!.giveUp();
    await sleep(SHOWN_MS);
    expect(await behind(other, key)).toBe(1);
    calls[2]!.giveUp();
    await sleep(SHOWN_MS);
    expect(await behind(other, key)).toBeUndefined();
    expect(await behind(holding, key)).toBe(0);
    expect(await isTold(key)).toBe(0);
    await lock.release();
  },
);

it('the number that the last holder reported is not shown for the next holder in another process [G937]', async () => {
  const [holding, other] = [await openLocks({ redis: redis.url }), await openLocks({ redis: redis.url })];
  const key = freshKey();
  const lock = await holding.acquire(key, { ttlMs: HOLDER_TTL_MS });
  const calls = [wait(holding, key), wait(holding, key)];
  await sleep(EXTENDED_WITHIN_MS);
  for (const call of calls) call.giveUp();
  const { lock: next } = wait(other, key);
  await untilQueued(redis, key, 1);
  await lock.release();
  const taken = await next;
  expect(await isTold(key)).toBe(1);
  const viewer = await openLocks({ redis: redis.url });
  expect(await viewer.inspect(key)).toMatchObject({
    holder: { owner: taken.owner },
    holders: [{ waiters: undefined }],
  });
  await taken.release();
});

const TTL_MS = 2_000;
const KEYS = ['a', 'b', 'c'];
const STEPS = 60;

/** A process, and its requests. */
class Caller {
  readonly #giveUp = new Set<AbortController>();
  readonly #held = new Set<Lock | Permit>();

  private constructor(
    readonly locks: LockService,
    readonly name: string,
  ) {}

  static async open(fair: boolean): Promise<Caller> {
    const locks = await openLocks({ redis: redis.url, ttlMs: TTL_MS, fair, cohortMs: 1 });
    return new Caller(locks, await processOf(locks));
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

/** Each process that is shown had a place at that moment, or just before, or just after. */
async function checkPlaces(key: string, locks: LockService): Promise<void> {
  const before = await placesOf(key);
  const shown = (await locks.inspect(key))?.waitingProcesses ?? [];
  const places = [...before, ...(await placesOf(key))];
  for (const { owner } of shown) expect(places).toContain(owner);
}

/** A process without calls sees each process with the number that it counts itself, in the queue or as the holder. */
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
  'each process that is shown as waiting has a place, and in a quiet moment as many calls as it counts itself (%s) [G935]',
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
