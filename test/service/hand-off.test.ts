import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { queued } from '../support/queue.js';
import { redlockNodes } from '../support/redlock-nodes.js';
import { scriptCalls } from '../support/script-calls.js';
import { clientOf, proxyTo } from '../support/stage.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, untilQueued } = await sceneOfFile();

/**
 * The other service waits for the lock, and gets it.
 * @returns how many script calls this took, from the release on
 */
async function handedOver(locks: LockService, others: LockService, key: string): Promise<number> {
  const holder = await locks.acquire(key);
  const waiting = others.acquire(key);
  await untilQueued(key);
  await server.resetCalls();
  await holder.release();
  const lock = await waiting;
  expect(lock.isHeld).toBe(true);
  expect(await queued(server, key)).toBe(0);
  expect(lock.fencingToken).toBeGreaterThan(holder.fencingToken);
  await others.isLocked(key); // asked after the extension
  const calls = await scriptCalls(server);
  await lock.release();
  return calls - 1;
}

it('a released lock reaches a waiter in another process with one release and one confirmation [G99]', async () => {
  const [locks, others] = [await open(), await open()];
  await handedOver(locks, others, 'before'); // from now on it listens
  expect(await handedOver(locks, others, 'direct')).toBe(2);
});

it('a lock that is handed over has the lease that the waiter asked for, however long the grant lasted [G109]', async () => {
  const [locks, others] = [await open(), await open()];
  const holder = await locks.acquire('own-ttl', { ttlMs: 20_000 });
  const waiting = others.acquire('own-ttl', { ttlMs: 7_000, watchdog: false });
  await untilQueued('own-ttl');
  await holder.release();
  const lock = await waiting;
  const inRedis = (await server.command('PTTL', 'lock:{own-ttl}')) as number;
  expect(inRedis).toBeGreaterThan(4_000);
  expect(inRedis).toBeLessThanOrEqual(7_000);
  expect(lock.remainingMs).toBeLessThanOrEqual(inRedis);
});

it('a lock that is handed over lasts for the ttl from when the confirmation was sent, not from when it was answered [G108]', async () => {
  const proxy = await proxyTo(server);
  const client = clientOf(proxy);
  const sent: number[] = [];
  const evalsha = client.evalsha.bind(client) as (...args: unknown[]) => Promise<unknown>;
  Object.assign(client, {
    evalsha: (...args: unknown[]) => {
      sent.push(performance.now());
      return evalsha(...args);
    },
  });
  const [locks, others] = [await open(), await openLocks({ redis: client, commandTimeoutMs: 10_000 })];
  const [holder, began] = [await locks.acquire('deadline'), performance.now()];
  const waiting = others.acquire('deadline', { ttlMs: 8_000, watchdog: false });
  await untilQueued('deadline');
  await sleep(100); // waiting takes its time
  const asked = sent.length;
  proxy.hold(); // published messages still come through
  await holder.release();
  await until(() => sent.length > asked, { what: 'the waiter confirms' });
  const confirmedAt = sent[asked]!;
  await sleep(100); // so does the confirmation
  proxy.release();
  const lock = await waiting;
  const now = performance.now();
  const VALIDITY_MS = 8_000 - 80 - 2; // less 1 % + 2 ms
  const deadline = now + lock.remainingMs;
  expect(deadline).toBeLessThan(confirmedAt + VALIDITY_MS + 5);
  expect(deadline).toBeGreaterThan(began + 100 + VALIDITY_MS - 5);
});

it.each([2, 8])(
  'a hot key costs three commands a turn among %i services that wait for it all the time [G300]',
  async (count) => {
    const services = await Promise.all(Array.from({ length: count }, () => open()));
    let turns = 0;
    const work = async (locks: LockService, until: number) => {
      while (turns < until) await locks.withLock('hot', { waitMs: 60_000 }, () => void turns++);
    };
    const all = (until: number) => Promise.all(services.map((locks) => work(locks, until)));
    await all(50); // until they listen
    await server.resetCalls();
    turns = 0;
    await all(300);
    expect((await scriptCalls(server)) / turns).toBeLessThan(3.2);
  },
);

it('waiters ask Redis at most a few times a second [G100]', async () => {
  const [locks, others] = [await open(), await open()];
  await handedOver(others, locks, 'few-warm');
  const holder = await others.acquire('few');
  await server.resetCalls();
  await expect(locks.acquire('few', { waitMs: 1_600 })).rejects.toThrow('held by');
  // An attempt, a place in the queue, one check after a second, and giving up the place.
  expect(await scriptCalls(server)).toBeLessThanOrEqual(5);
  await holder.release();
});

const refusal = (locks: LockService, key: string) => locks.acquire(key).then(() => 'granted', String);

it.each([
  ['nobody else waits', false],
  ['another process waits', true],
])(
  'A lock that is given back and asked for in one step is not reported as lost if no token can be created for the next call: %s [G646]',
  async (key, othersWait) => {
    const [locks, others] = [await open({ cohortMs: 0 }), await open({ cohortMs: 0 })];
    const holder = await locks.acquire(key);
    const refusals: Promise<string>[] = [];
    if (othersWait) {
      refusals.push(refusal(others, key));
      await untilQueued(key);
    }
    refusals.push(refusal(locks, key));
    await server.command('SET', 'lock:fence', '9e15');
    expect(await holder.release()).toBe(true);
    for (const reason of await Promise.all(refusals)) expect(reason).toContain('is out of range');
    expect(await server.keys(`lock:{${key}}*`)).toEqual([]);
    await server.command('DEL', 'lock:fence');
  },
);

it('a released lock of a Redlock reaches a waiter that does not poll [G125]', async () => {
  const nodes = await redlockNodes(3);
  const openRedlock = () => openLocks({ redlock: nodes.urls, commandTimeoutMs: 3_000 });
  const [locks, others] = [await openRedlock(), await openRedlock()];
  const places = () => Promise.all(nodes.servers.map((each) => queued(each, 'woken')));
  const times: number[] = [];
  for (let round = 0; round < 5; round++) {
    const holder = await others.acquire('woken');
    const waiting = locks.acquire('woken');
    // On a majority of the nodes: one node may have granted its vote, and got it back.
    await until(async () => (await places()).filter((count) => count > 0).length > 1, { what: 'it waits' });
    const from = performance.now();
    await holder.release();
    const lock = await waiting;
    times.push(performance.now() - from);
    expect(lock.fencingToken).toBeGreaterThan(holder.fencingToken);
    await lock.release();
  }
  // A waiting call checks after a second: before that, only a wake-up can have served it.
  expect(Math.min(...times)).toBeLessThan(500);
  await until(async () => (await places()).every((count) => count === 0), { what: 'nobody waits' });
});
