import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { LockService, RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { serversOfFile } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';

const servers = await serversOfFile(3);
const redis = servers[0]!;

/** A process tells how many of its calls wait each second; the rest is for a command or two. In milliseconds. */
const TOLD_WITHIN_MS = 1_200;

/** What the owner values of a service begin with: to the store it is a process. */
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

it.each<[string, () => RedisLockModuleOptions]>([
  ['on one Redis', () => ({ redis: redis.url })],
  ['in fair mode', () => ({ redis: redis.url, fair: true })],
  ['on a Redlock', () => ({ redlock: servers.map(({ url }) => url), admission: false })],
])(
  'each process that waits is shown with how many of its calls wait, as of a second ago at most (%s) [G933]',
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

it('a process that is silent while others show that they wait is left out of those that wait [G435]', async () => {
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

it('the processes that wait for a lock of a Redlock are those of all its nodes [G436]', async () => {
  const options = { redlock: servers.map(({ url }) => url), admission: false, commandTimeoutMs: 1_000 };
  const all = await Promise.all([openLocks(options), openLocks(options), openLocks(options)]);
  const names = await Promise.all(all.map(processOf));
  const key = 'quorum';
  const lock = await all[0]!.acquire(key);
  // Where it is not yet granted, the next attempt would be.
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
