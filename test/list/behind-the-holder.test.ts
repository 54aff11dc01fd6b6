import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { LockService, RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';

let servers: RedisServer[];
let redis: RedisServer;
beforeAll(async () => {
  servers = await Promise.all([RedisServer.start(), RedisServer.start(), RedisServer.start()]);
  redis = servers[0]!;
});
afterAll(() => Promise.all(servers.map((server) => server.stop())));

const TTL_MS = 6_000;
/** The first extension comes within a third of the ttl; the rest is for a command or two. In milliseconds. */
const EXTENDED_WITHIN_MS = TTL_MS / 3 + 100;
/** After that time nothing older is shown. In milliseconds. */
const SHOWN_MS = TTL_MS / 2 + 100;

let keys = 0;
const freshKey = () => `behind ${++keys}`;
/** A call that waits, and what makes it give up. */
function wait(locks: LockService, key: string, mode: 'exclusive' | 'shared' = 'exclusive') {
  const giveUp = new AbortController();
  const lock = locks.acquire(key, { waitMs: 600_000, ttlMs: TTL_MS, mode, signal: giveUp.signal });
  lock.catch(() => {});
  return { lock, giveUp: () => giveUp.abort() };
}
const behind = async (locks: LockService, key: string) => (await locks.inspect(key))!.holders[0]!.waiters;
const isTold = (key: string) => redis.command('EXISTS', `lock:{${key}}:calls`);

it.each<[string, () => RedisLockModuleOptions]>([
  ['on one Redis', () => ({ redis: redis.url })],
  ['in fair mode', () => ({ redis: redis.url, fair: true })],
  ['on a Redlock', () => ({ redlock: servers.map(({ url }) => url), admission: false })],
])(
  "how many calls wait behind a lock in its holder's process is shown to others, as of half a ttl ago at most (%s) [G936]",
  async (_where, options) => {
    const [holding, other] = [await openLocks(options()), await openLocks(options())];
    const key = freshKey();
    const lock = await holding.acquire(key, { ttlMs: TTL_MS });
    const calls = [1, 2, 3].map(() => wait(holding, key));
    await sleep(100);
    expect(await behind(holding, key)).toBe(3); // the process itself knows at once
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

it('an extension by hand tells it as one of the watchdog does', async () => {
  const [holding, other] = [await openLocks({ redis: redis.url }), await openLocks({ redis: redis.url })];
  const key = freshKey();
  const lock = await holding.acquire(key, { ttlMs: TTL_MS });
  const next = wait(holding, key);
  await lock.extend();
  expect(await behind(other, key)).toBe(1);
  await lock.release();
  await (await next.lock).release();
});

it('a majority of the nodes of a Redlock shows it, whichever node is down', async () => {
  const nodes = await Promise.all([RedisServer.start(), RedisServer.start(), RedisServer.start()]);
  const options = { redlock: nodes.map(({ url }) => url), admission: false, commandTimeoutMs: 500 };
  const [holding, other] = [await openLocks(options), await openLocks(options)];
  const key = freshKey();
  const lock = await holding.acquire(key, { ttlMs: TTL_MS });
  const { lock: next } = wait(holding, key);
  await nodes[0]!.stop();
  await sleep(EXTENDED_WITHIN_MS);
  expect(await behind(other, key)).toBe(1);
  await lock.release();
  await (await next).release();
  await Promise.all(nodes.slice(1).map((node) => node.stop()));
});

it('what the last holder has told is not shown of the next one in another process [G937]', async () => {
  const [holding, other] = [await openLocks({ redis: redis.url }), await openLocks({ redis: redis.url })];
  const key = freshKey();
  const lock = await holding.acquire(key, { ttlMs: TTL_MS });
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

it('a lock that is passed on within its process shows how many wait behind its next holder', async () => {
  const [holding, other] = [await openLocks({ redis: redis.url }), await openLocks({ redis: redis.url })];
  const key = freshKey();
  const lock = await holding.acquire(key, { ttlMs: TTL_MS });
  const [first, second, third] = [wait(holding, key), wait(holding, key), wait(holding, key)];
  await sleep(EXTENDED_WITHIN_MS);
  expect(await behind(other, key)).toBe(3);
  await lock.release();
  const next = await first.lock;
  await sleep(SHOWN_MS);
  expect(await behind(other, key)).toBe(2);
  await next.release();
  await (await second.lock).release();
  await (await third.lock).release();
});

it('a process whose calls wait in the queue, too, is shown there with all of them, and not as the holder once more', async () => {
  const [holding, other] = [await openLocks({ redis: redis.url }), await openLocks({ redis: redis.url })];
  const key = freshKey();
  const lock = await holding.acquire(key, { ttlMs: TTL_MS });
  const calls = [wait(holding, key), wait(holding, key), wait(holding, key, 'shared')];
  await sleep(EXTENDED_WITHIN_MS);
  for (const locks of [other, holding]) {
    const { holders, waitingProcesses } = (await locks.inspect(key))!;
    expect(waitingProcesses!.map(({ waiters }) => waiters)).toEqual([3]);
    expect(holders.map(({ waiters }) => waiters)).toEqual([undefined]);
  }
  await lock.release();
  await Promise.all(calls.map(async (call) => (await call.lock).release()));
});

it('nothing is told of a lock that nobody waits for in its process, nor of one that is shared', async () => {
  const [holding, other] = [await openLocks({ redis: redis.url }), await openLocks({ redis: redis.url })];
  const [key, shared] = [freshKey(), freshKey()];
  const locks = [
    await holding.acquire(key, { ttlMs: TTL_MS }),
    await holding.acquire(shared, { ttlMs: TTL_MS, mode: 'shared' }),
  ];
  const calls = [wait(other, key), wait(holding, shared)];
  await sleep(2 * TTL_MS);
  for (const each of [key, shared]) {
    expect(await isTold(each)).toBe(0);
    expect((await holding.inspect(each))!.waitingProcesses).toMatchObject([{ waiters: 1 }]);
  }
  for (const lock of locks) await lock.release();
  await Promise.all(calls.map(async (call) => (await call.lock).release()));
});

it('a lock in memory shows it exactly', async () => {
  const locks = await openLocks({ memory: true });
  const lock = await locks.acquire('memory');
  const calls = [wait(locks, 'memory'), wait(locks, 'memory')];
  await sleep(1);
  expect(await behind(locks, 'memory')).toBe(2);
  await lock.release();
  await Promise.all(calls.map(async (call) => (await call.lock).release()));
});
