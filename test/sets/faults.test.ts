import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { setTimeout as sleep, setImmediate as yieldToEvents } from 'node:timers/promises';
import type { LockService, RedisLockSettings } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

/** A lock that nobody gives back stays for longer than any test. */
const TTL_MS = 60_000;

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
  await loadScripts(server);
});
afterAll(() => server.stop());

const open = (settings: RedisLockSettings = {}) => openLocks({ redis: server.url, ttlMs: TTL_MS, ...settings });
/** The locks that are held of the keys that begin so. */
const heldOf = async (prefix: string) => (await server.keys(`lock:{${prefix}*}`)).map((key) => key.slice(6, -1));
const untilFree = (prefix: string) =>
  until(async () => (await heldOf(prefix)).length === 0, { what: `all locks of "${prefix}" are given back` });

async function throughProxy(settings: RedisLockSettings = {}): Promise<{ proxy: TcpProxy; locks: LockService }> {
  const proxy = await TcpProxy.start(server.port);
  onTestFinished(() => proxy.stop());
  return { proxy, locks: await open({ redis: proxy.url, commandTimeoutMs: 500, ...settings } as RedisLockSettings) };
}

describe('a set of which one lock has ended', () => {
  it('the release of a set gives back the others when one had expired, and leaves the new holder of that one alone [G397]', async () => {
    const [locks, others] = [await open(), await open()];
    const set = await locks.acquireAll(['exp:1', 'exp:2', 'exp:3']);
    await server.command('DEL', 'lock:{exp:2}');
    const theirs = await others.acquire('exp:2');
    expect(await set.release()).toBe(false);
    expect(await heldOf('exp:')).toEqual(['exp:2']);
    expect(theirs.isHeld).toBe(true);
    await theirs.release();
  });

  it('an extension of a set reaches the others when one has expired, and says which one is lost', async () => {
    const locks = await open();
    const set = await locks.acquireAll(['ext:1', 'ext:2', 'ext:3']);
    await server.command('DEL', 'lock:{ext:1}');
    await expect(set.extend(2 * TTL_MS)).rejects.toMatchObject({ code: 'LOCK_LOST', key: 'ext:1' });
    for (const key of ['ext:2', 'ext:3']) expect(await server.command('PTTL', `lock:{${key}}`)).toBeGreaterThan(TTL_MS);
    await set.release();
    expect(await heldOf('ext:')).toEqual([]);
  });
});

describe('a set whose Redis fails', () => {
  it('a release that fails as the server is gone is repeated for each lock of the set, and leaves none once it is back [G398]', async () => {
    const { proxy, locks } = await throughProxy();
    const set = await locks.acquireAll(['gone:1', 'gone:2', 'gone:3']);
    proxy.refuse();
    proxy.cut();
    expect(await set.release()).toBe(false);
    expect(await heldOf('gone:')).toHaveLength(3);
    await proxy.accept();
    await untilFree('gone:');
  });

  it('a set whose first round is not answered is refused as unavailable, and leaves nothing of what was granted', async () => {
    const { proxy, locks } = await throughProxy();
    await locks.withLock('warm', () => {});
    proxy.dropReplies();
    await expect(locks.acquireAll(['hang:1', 'hang:2'])).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(locks.size).toBe(0);
    proxy.passReplies();
    await untilFree('hang:');
  });

  it('a set is refused when its time is over, though its server owes the answers for longer than that [G498]', async () => {
    const { proxy, locks } = await throughProxy({ commandTimeoutMs: 10_000 });
    await locks.withLock('warm', () => {});
    proxy.hold();
    const ended: string[] = [];
    const refused = async (name: string, call: Promise<unknown>) => {
      await expect(call).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      ended.push(name);
    };
    const calls = [refused('single', locks.acquire('owed:3', { waitMs: 900 }))];
    calls.push(refused('set', locks.acquireAll(['owed:1', 'owed:2'], { waitMs: 300 })));
    await Promise.all(calls);
    expect(ended).toEqual(['set', 'single']);
    proxy.release();
    await untilFree('owed:');
    await until(() => locks.size === 0, { what: 'all attempts have ended' });
  });

  it('a set whose server hangs while it waits is refused when its time is over, and leaves nothing behind', async () => {
    const { proxy, locks } = await throughProxy();
    const holder = await (await open()).acquire('late:2');
    const acquiring = locks.acquireAll(['late:1', 'late:2', 'late:3'], { waitMs: 600 });
    acquiring.catch(() => {});
    await untilQueued(server, 'late:2', 1);
    proxy.dropReplies();
    await holder.release();
    await expect(acquiring).rejects.toMatchObject({
      name: expect.stringMatching(/^Lock(Contended|Unavailable)Error$/),
    });
    proxy.passReplies();
    await untilFree('late:');
    await until(() => locks.size === 0, { what: 'all attempts have ended' });
  });
});

describe('a set that is given up in the middle', () => {
  it('a signal that aborts at whatever moment leaves nothing of a set [G399]', async () => {
    const ROUND_TRIP_MS = 10;
    const SETS = 50;
    const { proxy, locks } = await throughProxy({ commandTimeoutMs: 5_000 });
    const others = await open();
    proxy.roundTripMs = ROUND_TRIP_MS;
    /** The second lock is given back after two round trips: the set is refused, queued, handed over, and asks for the rest. */
    const acquire = async (index: number): Promise<boolean> => {
      const keys = [1, 2, 3].map((number) => `abort:${index}:${number}`);
      const holder = await others.acquire(keys[1]!);
      const controller = new AbortController();
      const acquiring = locks.acquireAll(keys, { signal: controller.signal });
      const abortsInMs = (6 * ROUND_TRIP_MS * index) / SETS;
      const aborting = sleep(abortsInMs).then(() => index < SETS - 1 && controller.abort());
      const releasing = sleep(2 * ROUND_TRIP_MS).then(() => holder.release());
      const isAcquired = await acquiring.then(
        (set) => set.release(),
        (error: unknown) => {
          expect(error).toBe(controller.signal.reason);
          return false;
        },
      );
      await Promise.all([aborting, releasing]);
      return isAcquired;
    };
    const acquired = (await Promise.all(Array.from({ length: SETS }, (_, index) => acquire(index)))).filter(Boolean);
    expect(acquired.length).toBeGreaterThan(0);
    expect(acquired.length).toBeLessThan(SETS - 10);
    await untilFree('abort:');
    for (const service of [locks, others]) await until(() => service.size === 0, { what: 'all attempts have ended' });
  });

  it.each([
    ['before anything is answered', 0],
    ['while it waits', 1],
  ])('an application that begins to close %s refuses the set, and leaves nothing of it', async (_, waits) => {
    const [locks, others] = [await open(), await open()];
    const prefix = `close:${waits}:`;
    const holder = await others.acquire(`${prefix}2`);
    const acquiring = locks.acquireAll([1, 2, 3].map((number) => `${prefix}${number}`));
    acquiring.catch(() => {});
    if (waits === 1) await untilQueued(server, `${prefix}2`, 1);
    locks.onModuleDestroy();
    await expect(acquiring).rejects.toThrow('The application is closing');
    await until(async () => String(await heldOf(prefix)) === `${prefix}2`, { what: 'only the other lock is held' });
    await holder.release();
    expect(locks.size).toBe(0);
  });
});

describe('a set whose first locks end while it waits for another', () => {
  it('a set of which one lock was lost before all were acquired is refused, and leaves nothing [G335]', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('ended:2');
    const acquiring = locks.acquireAll(['ended:1', 'ended:2'], { ttlMs: 50, watchdog: false });
    const outcome = acquiring.catch((error: unknown) => error);
    await untilQueued(server, 'ended:2', 1);
    await until(async () => !(await heldOf('ended:')).includes('ended:1'), {
      what: 'the lease of the first has ended',
    });
    await holder.release();
    expect(await outcome).toMatchObject({
      code: 'LOCK_UNAVAILABLE',
      key: 'ended:1',
      message: expect.stringContaining('lost again before all locks of the call were acquired (expired)'),
    });
    await untilFree('ended:');
    expect(locks.size).toBe(0);
  });

  it('a set that is given up between two of its questions leaves no handle on a lock of the call around it', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('between:1');
    const reason = new Error('enough');
    await locks.withLock('between:2', async () => {
      const giveUp = new AbortController();
      const isGranted = (key: string, type: string) => key === 'between:1' && type === 'acquired';
      const watching = locks.events$.subscribe(({ key, type }) => isGranted(key, type) && giveUp.abort(reason));
      const acquiring = locks.acquireAll(['between:1', 'between:2', 'between:3'], { signal: giveUp.signal });
      await untilQueued(server, 'between:1', 1);
      await holder.release();
      await expect(acquiring).rejects.toBe(reason);
      watching.unsubscribe();
    });
    await untilFree('between:');
    expect(locks.size).toBe(0);
  });
});

describe('what others do wrong with several locks', () => {
  it('two that name the same keys in opposite orders both get on, and ask a bounded number of times', async () => {
    const TURNS = 40;
    const services = [await open(), await open()];
    const work = async (locks: LockService, keys: string[]) => {
      for (let turn = 0; turn < TURNS; turn++) await locks.withLock(keys, () => yieldToEvents());
    };
    await server.resetCalls();
    await Promise.all([work(services[0]!, ['cross:1', 'cross:2']), work(services[1]!, ['cross:2', 'cross:1'])]);
    // A turn tries and releases two keys. When it is refused it asks again for the first, gives back the second, and tries that again.
    expect(await scriptCalls(server)).toBeLessThan(2 * TURNS * 12);
  });

  it('however often a set was refused before, each of its locks has the ttl that was asked for', async () => {
    const [locks, others] = [await open(), await open()];
    const holders = [await others.acquire('ttl:1'), await others.acquire('ttl:3')];
    const acquiring = locks.acquireAll(['ttl:1', 'ttl:2', 'ttl:3'], { ttlMs: 30_000 });
    await untilQueued(server, 'ttl:1', 1);
    await holders[0]!.release();
    await untilQueued(server, 'ttl:3', 1);
    await holders[1]!.release();
    const set = await acquiring;
    for (const key of set.keys) {
      const confirmed = async () => Number(await server.command('PTTL', `lock:{${key}}`)) > 10_000; // a grant is extended
      await until(confirmed, { what: `the lock "${key}" is extended` });
      expect(await server.command('PTTL', `lock:{${key}}`)).toBeLessThanOrEqual(30_000);
    }
    await set.release();
  });

  it('waitMs is that of the whole set, not of each of its keys', async () => {
    const [locks, others] = [await open(), await open()];
    const [first, second] = [await others.acquire('time:1'), await others.acquire('time:2')];
    const ended: string[] = [];
    const refused = async (name: string, call: Promise<unknown>) => {
      await expect(call).rejects.toMatchObject({ code: 'LOCK_CONTENDED', key: 'time:2' });
      ended.push(name);
    };
    const set = refused('set', locks.acquireAll(['time:1', 'time:2'], { waitMs: 1_000 }));
    const single = refused('single', others.acquire('time:2', { waitMs: 1_300 }));
    await untilQueued(server, 'time:1', 1);
    const half = performance.now() + 510;
    await until(() => performance.now() > half, { what: 'more than half of that is over' });
    await first.release();
    await Promise.all([set, single]);
    expect(ended).toEqual(['set', 'single']);
    await second.release();
  });

  it('a set that waits is woken, and does not ask again and again', async () => {
    const [locks, others] = [await open(), await open()];
    const holder = await others.acquire('poll:1');
    const acquiring = locks.acquireAll(['poll:1', 'poll:2']);
    await untilQueued(server, 'poll:1', 1);
    await server.resetCalls();
    await holder.release();
    await (await acquiring).release();
    expect(await scriptCalls(server)).toBeLessThanOrEqual(8);
  });

  it('a set excludes whoever has one of its keys alone', async () => {
    const [locks, others] = [await open(), await open()];
    const set = await locks.acquireAll(['alone:1', 'alone:2']);
    expect(await others.tryAcquire('alone:2')).toBeNull();
    await set.release();
    const single = await others.acquire('alone:2');
    expect(await locks.tryAcquireAll(['alone:1', 'alone:2'])).toBeNull();
    await single.release();
    expect(await heldOf('alone:')).toEqual([]);
  });
});
