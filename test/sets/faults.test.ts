import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { redlockNodes } from '../support/redlock-nodes.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';
import { expectSound } from './random-sets.js';

/** A lock that nobody releases stays for longer than any test. */
const TTL_MS = 60_000;

const { server, open, openBehindProxy, untilQueued } = await sceneOfFile({ ttlMs: TTL_MS });

/** The held locks whose keys begin like this. */
const heldOf = async (prefix: string) => (await server.keys(`lock:{${prefix}*}`)).map((key) => key.slice(6, -1));
const untilFree = (prefix: string) =>
  until(async () => (await heldOf(prefix)).length === 0, { what: `all locks of "${prefix}" are given back` });

it('the release of a set gives back the others when one had expired, and leaves alone the new holder of that lock [G397]', async () => {
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

it('a release that fails as the server is gone is repeated for each lock of the set, and leaves none once it is back [G398]', async () => {
  const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 500 });
  const set = await locks.acquireAll(['gone:1', 'gone:2', 'gone:3']);
  proxy.refuse();
  proxy.cut();
  expect(await set.release()).toBe(false);
  expect(await heldOf('gone:')).toHaveLength(3);
  await proxy.accept();
  await untilFree('gone:');
});

it('a set is refused when its time has passed, although its server takes longer to answer [G498]', async () => {
  const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 10_000 });
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

it('a signal that aborts at any moment leaves nothing of a set [G399]', async () => {
  const ROUND_TRIP_MS = 10;
  const SETS = 50;
  const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 5_000 });
  const others = await open();
  proxy.roundTripMs = ROUND_TRIP_MS;
  /**
   * The second lock is released after two round trips: the set is refused, queued, handed the lock, and asks for the
   * rest.
   */
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

it('a set of which one lock was lost before all were acquired is refused, and leaves nothing [G335]', async () => {
  const [locks, others] = [await open(), await open()];
  const holder = await others.acquire('ended:2');
  const acquiring = locks.acquireAll(['ended:1', 'ended:2'], { ttlMs: 50, watchdog: false });
  const outcome = acquiring.catch((error: unknown) => error);
  await untilQueued('ended:2');
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

it('random sets of a Redlock exclude each other by key and all end, although a node is down [G396]', async () => {
  const nodes = await redlockNodes(3);
  const openRedlock = () => openLocks({ redlock: nodes.urls, ttlMs: TTL_MS, commandTimeoutMs: 1_000 });
  const services = [await openRedlock(), await openRedlock()];
  await nodes.kill(2);
  onTestFinished(() => nodes.restart()); // closing would wait for it
  await expectSound(services, [...'abc'], 4);
});
