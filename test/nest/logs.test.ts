import { Injectable } from '@nestjs/common';
import { Locked } from 'nest-redis-lock';
import { Observable, of } from 'rxjs';
import { beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import { Gate } from '../support/gate.js';
import { makeApp, type TestApp } from '../support/nest-app.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

@Injectable()
class Orders {
  @Locked('order', { waitMs: 0 })
  asStream(): Observable<string> {
    return of('ordered');
  }
}

it('a refused stream names its method', async () => {
  const { app, locks } = await makeApp({ providers: [Orders] });
  await using _held = await locks.acquire('order');
  const error = await new Promise((resolve) => app.get(Orders).asStream().subscribe({ error: resolve }));
  expect(error).toMatchObject({ method: 'Orders.asStream', key: 'order', code: 'LOCK_CONTENDED' });
});

describe('an outage', () => {
  let redis: RedisServer;
  beforeEach(async () => {
    redis = await RedisServer.start({ args: ['--appendonly', 'yes'] });
    onTestFinished(() => redis.stop());
  });

  const AGAIN = 'Locks are available again';
  const again = ({ log }: TestApp) =>
    until(() => log.lines.find((line) => line.includes(AGAIN)), { what: 'locks are available again' });
  const outage = (problem: string) => expect.stringMatching(`^warn Locks are unavailable: ${problem}`);

  it('the end of an outage is logged when nobody asks for locks: how long it took, and how many calls were refused [G195]', async () => {
    const test = await makeApp({}, { redis: redis.url, commandTimeoutMs: 100 });
    await redis.kill();
    const refused = await Promise.allSettled(['a', 'b', 'c'].map((key) => test.locks.acquire(key)));
    expect(refused.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    await redis.restart();
    await again(test);
    expect(test.log.lines).toEqual([
      outage(`127\\.0\\.0\\.1:${redis.port}: `),
      expect.stringMatching(/^warn Locks are available again after \d+\.\d s, in which 3 calls were refused\.$/),
    ]);
    expect(test.events.map(({ type }) => type)).toEqual(['unavailable', 'unavailable', 'unavailable']);
  });

  it('begins anew after it was over', async () => {
    const test = await makeApp({}, { redis: redis.url, commandTimeoutMs: 100 });
    for (const _ of [1, 2]) {
      await redis.kill();
      await expect(test.locks.acquire('a')).rejects.toThrow('could not be acquired');
      await redis.restart();
      await again(test);
      expect(test.log.lines.splice(0)).toEqual([
        outage('127'),
        expect.stringMatching(/s, in which 1 call was refused\.$/),
      ]);
    }
  });

  it('is none that one key is of no use, and does not hide one that comes later', async () => {
    const test = await makeApp({}, { redis: redis.url, commandTimeoutMs: 500 });
    await redis.command('ZADD', 'lock:{used}', 1, 'by another program');
    await expect(test.locks.acquire('used')).rejects.toThrow('Another program keeps other data under that key');
    expect(test.log.lines).toEqual([]);
    await redis.kill();
    await expect(test.locks.acquire('a')).rejects.toThrow('could not be acquired');
    expect(test.log.lines).toEqual([outage('127')]);
    await redis.restart();
  });

  it('is one that the fencing counter, which all locks share, is of no use [G970]', async () => {
    const test = await makeApp({}, { redis: redis.url });
    await redis.command('DEL', 'lock:fence');
    await redis.command('RPUSH', 'lock:fence', 'by another program');
    for (const key of ['a', 'b']) await expect(test.locks.acquire(key)).rejects.toThrow('WRONGTYPE');
    expect(test.log.lines).toEqual([outage('127.*ERR the fencing counter lock:fence: WRONGTYPE')]);
    await redis.command('DEL', 'lock:fence');
    await again(test);
  });

  it('of a Redlock names its nodes, and begins when no majority of them is left', async () => {
    const nodes = await Promise.all([1, 2, 3].map(() => RedisServer.start()));
    onTestFinished(async () => void (await Promise.all(nodes.map((node) => node.stop()))));
    const redlock = nodes.map(({ url }) => url);
    const test = await makeApp({}, { redlock, admission: false, ttlMs: 5_000 });
    test.log.lines.length = 0; // what the check of the servers found
    await nodes[0]!.kill();
    await (await test.locks.acquire('a')).release();
    expect(test.log.lines).toEqual([]);
    await nodes[1]!.kill();
    await expect(test.locks.acquire('a')).rejects.toThrow('could not be acquired');
    expect(test.log.lines).toEqual([outage(`.*127\\.0\\.0\\.1:${nodes[1]!.port}: `)]);
    await nodes[1]!.restart();
    await again(test);
  });

  it.each([
    ['an extension', 'extension-failed', 1_000],
    ['a release', 'release-failed', 60_000],
  ] as const)('begins with %s that fails, too', async (_what, type, ttlMs) => {
    const test = await makeApp({}, { redis: redis.url, ttlMs, commandTimeoutMs: 300, shutdownTimeoutMs: 0 });
    const lock = await test.locks.acquire('a');
    await redis.kill();
    if (type === 'release-failed') await lock.release();
    await until(() => test.events.some((event) => event.type === type), { what: type });
    expect(test.log.lines[0]).toEqual(outage('127'));
    await redis.restart();
    expect(await again(test)).toContain('in which 0 calls were refused');
  });

  it('does not begin when calls are refused because the application closes', async () => {
    const test = await makeApp({}, { redis: redis.url, shutdownTimeoutMs: 0 });
    await test.locks.acquire('a');
    const waiting = test.locks.acquire('a').catch((error: unknown) => error);
    await test.app.close();
    expect(await waiting).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(test.log.lines.filter((line) => line.includes('available'))).toEqual([]);
  });

  it('is not looked at any more when the application has closed', async () => {
    const { app, locks } = await makeApp({}, { redis: redis.url, commandTimeoutMs: 100 });
    await redis.kill();
    await expect(locks.acquire('a')).rejects.toThrow('could not be acquired');
    const answered = new Gate();
    const asked = vi.spyOn(locks, 'isAvailable').mockImplementation(async () => {
      await answered.opened;
      return false;
    });
    onTestFinished(() => asked.mockRestore());
    await until(() => asked.mock.calls.length > 0, { what: 'it is looked at' });
    const timers = vi.spyOn(globalThis, 'setTimeout');
    onTestFinished(() => timers.mockRestore());
    await app.close();
    timers.mockClear();
    answered.open();
    await new Promise(setImmediate);
    expect(timers).not.toHaveBeenCalled();
  });
});

describe('what happens to many locks at once is logged as two lines:', () => {
  const keys = Array.from({ length: 13 }, (_, index) => `key ${index}`);
  const rest = `${keys
    .slice(1, 11)
    .map((key) => `"${key}"`)
    .join(', ')}, 2 more`;

  it('many locks that are lost at once are logged as two lines [G197]', async () => {
    const { locks, log } = await makeApp({}, { memory: true });
    for (const key of keys) await locks.acquire(key);
    for (const key of keys) await locks.forceRelease(key);
    await until(() => log.lines.length === 2, { what: 'the rest is logged' });
    expect(log.lines).toEqual([
      expect.stringMatching(/^error Lock "key 0" \(fencing token \d+\) was lost: forced\.$/),
      `error 12 more locks were lost (forced): ${rest}.`,
    ]);
  });

  it('that their releases are not confirmed', async () => {
    const redis = await RedisServer.start({ args: ['--appendonly', 'yes'] });
    const lock = { redis: redis.url, commandTimeoutMs: 500, shutdownTimeoutMs: 0 };
    const { app, locks, log } = await makeApp({}, lock);
    const held = [];
    for (const key of keys) held.push(await locks.acquire(key));
    await redis.stop();
    await Promise.all(held.map((each) => each.release()));
    await app.close(); // which logs what it has
    expect(log.lines.filter((line) => line.includes('release'))).toEqual([
      expect.stringMatching(/^warn The release of lock "key 0" was not confirmed and is being retried: 127.*\.$/),
      `warn The releases of 12 more locks were not confirmed and are being retried: ${rest}.`,
    ]);
  });
});
