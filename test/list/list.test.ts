import { Redis } from 'ioredis';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import type { Lock, LockInfo, LockService, LockUnavailableError, RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { redisServer, serversOfFile } from '../support/stage.js';
import { until } from '../support/until.js';

const FOREIGN = 20_000;

const servers = await serversOfFile(3);
const redis = servers[0]!;
beforeAll(async () => {
  await redis.command('DEBUG', 'POPULATE', FOREIGN, 'foreign', 10);
});

const redlock = (more: object = {}): RedisLockModuleOptions => ({
  redlock: servers.map(({ url }) => url),
  admission: false,
  commandTimeoutMs: 500,
  ...more,
});
/** Without the times that change. */
const atAnyTime = ({ since, remainingMs, keptUntil, holders, ...lock }: LockInfo) => ({
  ...lock,
  holders: holders.map((each) => ({ ...each, since: typeof each.since, remainingMs: typeof each.remainingMs })),
  are: [since, remainingMs, keptUntil].map((time) => typeof time),
});
const nameOf = ({ port }: RedisServer) => `127.0.0.1:${port}`;
const keysOf = async (locks: LockService, match?: string) => (await locks.list({ match })).locks.map(({ key }) => key);
const refusalOf = (locks: LockService, match?: string) =>
  locks.list({ match }).then(
    () => undefined,
    (error: unknown) => error as LockUnavailableError,
  );

it.each<[string, (more: object) => RedisLockModuleOptions]>([
  ['one Redis', (more) => ({ redis: redis.url, ...more })],
  ['a Redlock', redlock],
  ['memory', (more) => ({ memory: true, ...more })],
])('list() shows what all processes hold or keep, by key, as inspect does (%s) [G416]', async (store, options) => {
  const keyPrefix = `all ${store}`.replaceAll(' ', '-');
  const a = await openLocks(options({ keyPrefix }));
  const b = store === 'memory' ? a : await openLocks(options({ keyPrefix }));
  expect(await a.list()).toMatchObject({ locks: [], complete: true });

  const held: Lock[] = [];
  for (const [locks, key] of [
    [b, 'order:2'],
    [a, 'user:1'],
    [b, 'order:10'],
  ] as const) {
    held.push(await locks.acquire(key));
  }
  await (await b.acquire('kept', { holdMs: 20_000 })).release();
  await (await b.acquire('order:3')).release();

  const list = await a.list();
  expect(list.complete).toBe(true);
  expect(list.scanned).toBeGreaterThanOrEqual(4);
  expect(list.locks.map(({ key }) => key)).toEqual(['kept', 'order:10', 'order:2', 'user:1']);
  for (const lock of list.locks) {
    expect(atAnyTime(lock)).toEqual(atAnyTime((await a.inspect(lock.key))!));
  }
  expect(list.locks[0]!.keptUntil).toBeInstanceOf(Date);
  expect(list.locks.map(({ fencingToken }) => fencingToken)).toEqual(
    expect.arrayContaining(held.map(({ fencingToken }) => fencingToken)),
  );
  expect(await keysOf(a, 'order:*')).toEqual(['order:10', 'order:2']);
  expect(await keysOf(a, '*:1*')).toEqual(['order:10', 'user:1']);
  expect(await keysOf(a, 'order:2')).toEqual(['order:2']);
  expect(await keysOf(a, 'order')).toEqual([]);

  await Promise.all(held.map((lock) => lock.release()));
  expect(await keysOf(a)).toEqual(['kept']);
});

it.each<[string, (more: object) => RedisLockModuleOptions]>([
  ['one Redis', (more) => ({ redis: redis.url, ...more })],
  ['memory', (more) => ({ memory: true, ...more })],
])(
  'only the * of match is a wildcard in a list, not characters in keys and prefixes (%s) [G417]',
  async (store, options) => {
    const locks = await openLocks(options({ keyPrefix: 'a*[b]?\\' }));
    const others = await openLocks(options({ keyPrefix: 'aXbY' })); // fits the prefix if that is read as a pattern
    await others.acquire('order:1');
    const keys = ['*?[]\\^-', 'order:1?[x]', 'order:1zx', 'order:12?[x]', '}'.padStart(3, '{'), 'a}:queue', 'é*'];
    for (const key of keys) await locks.acquire(key);
    expect(await keysOf(locks)).toEqual([...keys].sort());
    expect(await keysOf(others)).toEqual(['order:1']);
    expect(await keysOf(locks, 'order:*?[x]')).toEqual(['order:1?[x]', 'order:12?[x]'].sort());
    for (const key of keys) expect(await keysOf(locks, key.replaceAll('*', '**')), store).toContain(key);
    expect(await keysOf(locks, '*\\^-')).toEqual(['*?[]\\^-']);
    expect(await keysOf(locks, '?rder:1zx')).toEqual([]);
  },
);

it('services with different prefixes do not see each other’s locks, whether the module or the client has the prefix [G438]', async () => {
  const client = (keyPrefix: string) => () => new Redis(redis.port, '127.0.0.1', { keyPrefix });
  const all = await Promise.all(
    [
      { keyPrefix: 'shop' },
      { keyPrefix: 'shop:x' },
      { keyPrefix: 'shop', redis: client('app:') },
      { keyPrefix: 'shop', redis: client('app[1]*:') },
    ].map((options) => openLocks({ redis: redis.url, ...options })),
  );
  for (const [at, locks] of all.entries()) await locks.acquire(`of ${at}`);
  expect(await Promise.all(all.map((locks) => keysOf(locks)))).toEqual([['of 0'], ['of 1'], ['of 2'], ['of 3']]);
});

it('a list that its limit or its budget has cut short says so [G418]', async () => {
  const locks = await openLocks({ redis: redis.url, keyPrefix: 'bounded' });
  const memory = await openLocks({ memory: true });
  const all = Array.from({ length: 12 }, (_, index) => `order:${index}`);
  for (const each of [locks, memory]) {
    await Promise.all(all.map((key) => each.acquire(key)));
    const whole = await each.list({ limit: 12 });
    expect([whole.locks.length, whole.complete]).toEqual([12, true]);
    const part = await each.list({ limit: 5 });
    expect([part.locks.length, part.complete]).toEqual([5, false]);
    expect(all).toEqual(expect.arrayContaining(part.locks.map(({ key }) => key)));
  }
  await Promise.all(Array.from({ length: 501 - 12 }, (_, index) => memory.acquire(`further:${index}`)));
  const byDefault = await memory.list();
  expect([byDefault.locks.length, byDefault.complete]).toEqual([500, false]);
  const started = await locks.list({ budgetMs: 1 });
  expect(started.complete).toBe(false);
  expect(started.scanned).toBeGreaterThan(0);
  expect(started.scanned).toBeLessThan(FOREIGN);
  expect((await locks.list()).scanned).toBeGreaterThanOrEqual(FOREIGN);

  const ofMajority = await openLocks(redlock({ keyPrefix: 'bounded' }));
  expect((await ofMajority.list({ budgetMs: 1 })).complete).toBe(true); // the other two have few keys
  await servers[1]!.command('DEBUG', 'POPULATE', FOREIGN, 'foreign', 10);
  expect((await ofMajority.list({ budgetMs: 1 })).complete).toBe(false);
});

it('list() refuses options that it does not know, or that are out of bounds [G437]', async () => {
  const locks = await openLocks({ memory: true });
  for (const [options, message] of [
    [{ match: '' }, 'match must be a string of 1 to 1024 bytes: got "".'],
    [{ match: 'é'.repeat(513) }, 'match must be a string of 1 to 1024 bytes'],
    [{ match: /order/ }, 'match must be a string of 1 to 1024 bytes: got an object.'],
    [{ limit: 0 }, 'limit must be a whole number from 1 to 10000: got 0.'],
    [{ budgetMs: 60_001 }, 'budgetMs must be a whole number of milliseconds from 1 to 60000: got 60001.'],
    [{ budget: 1 }, 'There is no option "budget"'],
    [null, 'options must be an object'],
  ] as const) {
    await expect(locks.list(options as never)).rejects.toMatchObject({
      code: 'LOCK_OPTIONS',
      message: expect.stringContaining(message),
    });
  }
});

it('a list of a hanging Redis ends in time, and sends it nothing more until it answers [G419]', async () => {
  const server = await redisServer();
  const locks = await openLocks({ redis: server.url, commandTimeoutMs: 200 });
  await locks.acquire('key', { ttlMs: 60_000 });
  await locks.list();
  const scans = async () => (await server.calls()).scan;
  const before = (await scans())!;
  server.pause();
  const since = performance.now();
  const overdue = (await refusalOf(locks))!;
  expect(performance.now() - since).toBeLessThan(2_000);
  expect(overdue).toMatchObject({ code: 'LOCK_UNAVAILABLE', causes: [{ node: nameOf(server) }] });
  expect(overdue.message).toMatch(/^The locks could not be listed: .*no answer within 200 ms/);
  const again = await refusalOf(locks);
  expect(again!.message).toContain('an earlier command is still in flight');
  server.resume();
  const list = await until(() => locks.list().catch(() => undefined), { what: 'it answers again' });
  expect(list.locks).toMatchObject([{ key: 'key' }]);
  expect(await scans()).toBe(before + 2); // the overdue one, and the one of this list

  await server.kill();
  const gone = (await refusalOf(locks))!;
  expect(gone).toMatchObject({ code: 'LOCK_UNAVAILABLE', causes: [{ node: nameOf(server) }] });
});

it('does not say that a lock of a Redlock is free if a silent node may make it held [G497]', async () => {
  const locks = await openLocks(redlock({ keyPrefix: 'asked' }));
  onTestFinished(() => servers.forEach((server) => server.resume()));
  await servers[0]!.command('SET', 'asked:{leftover}', 'host/1/random/1@1700000000000000', 'PX', 60_000);
  expect(await locks.isLocked('leftover')).toBe(false);

  servers[2]!.pause();
  const unknown = { code: 'LOCK_UNAVAILABLE', key: 'leftover', causes: [{ node: nameOf(servers[2]!) }] };
  await expect(locks.isLocked('leftover')).rejects.toMatchObject(unknown);
  await expect(locks.inspect('leftover')).rejects.toMatchObject(unknown);
  const owner = '0123456789abcdef';
  await expect(locks.forceRelease('leftover', { owner })).rejects.toMatchObject(unknown);
  expect(await locks.isLocked('another')).toBe(false); // none of the nodes that answer has a vote
});

it('a list of a Redlock needs a majority, and leaves out what only a minority has [G433]', async () => {
  const locks = await openLocks(redlock({ keyPrefix: 'votes', ttlMs: 60_000 }));
  onTestFinished(() => servers.forEach((server) => server.resume()));
  await locks.acquire('held');
  await servers[0]!.command('SET', 'votes:{leftover}', 'host/1/random/1@1700000000000000', 'PX', 60_000);
  await servers[1]!.command('SET', 'votes:{split}', 'host/1/random/1@1700000000000000', 'PX', 60_000);
  await servers[0]!.command('SET', 'votes:{split}', 'host/1/random/2@1700000000000000', 'PX', 60_000);
  expect(await locks.list()).toMatchObject({ locks: [{ key: 'held' }], complete: true });

  servers[2]!.pause();
  expect(await locks.list({ match: 'he*' })).toMatchObject({ locks: [{ key: 'held' }], complete: true });
  expect(await locks.list()).toMatchObject({ locks: [{ key: 'held' }], complete: false }); // it may have the others, too
  servers[1]!.pause();
  const refused = (await refusalOf(locks, 'no such key'))!;
  expect(refused).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  expect(refused.causes.map(({ node }) => node).sort()).toEqual([servers[1]!, servers[2]!].map(nameOf).sort());
});
