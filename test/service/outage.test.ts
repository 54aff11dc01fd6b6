import { beforeEach, expect, it } from 'vitest';
import type { LockService, RedisLockSettings } from 'nest-redis-lock';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { proxyTo, redisServer, redisServers } from '../support/stage.js';
import { until } from '../support/until.js';

const COMMAND_TIMEOUT_MS = 500;
/** A command, a reconnect and another command, on a busy machine. */
const BOUND_MS = 4_000;

let server: RedisServer;
beforeEach(async () => {
  server = await redisServer(); // stops after the services, which close first
});

const open = (settings: RedisLockSettings = {}): Promise<LockService> =>
  openLocks({ redis: server.url, commandTimeoutMs: COMMAND_TIMEOUT_MS, ...settings });

async function noKeyIsLeft(): Promise<void> {
  const isLeft = async () => (await server.keys('lock:{*}')).length > 0;
  await until(async () => !(await isLeft()), { what: 'no key is left', timeoutMs: 5_000 });
}

/** The outcome of a call, and a check that it settles within the bound. */
async function bounded<T>(call: Promise<T>): Promise<unknown> {
  const startedAt = performance.now();
  const outcome = await call.catch((error: unknown) => error);
  expect(performance.now() - startedAt).toBeLessThan(BOUND_MS);
  return outcome;
}

const UNAVAILABLE = { code: 'LOCK_UNAVAILABLE', status: 503, key: 'key' };

it('a call whose Redis is stopped is rejected as unavailable in bounded time, and the error names the node [G45]', async () => {
  const locks = await open();
  await (await locks.acquire('other')).release(); // the server knows the scripts, so it runs them when it resumes
  server.pause();
  expect(await bounded(locks.acquire('key', { ttlMs: 60_000 }))).toMatchObject({
    ...UNAVAILABLE,
    causes: [{ node: `127.0.0.1:${server.port}`, problem: expect.stringContaining('no answer within 500 ms') }],
  });
  server.resume();
  await noKeyIsLeft();
  await until(() => locks.tryAcquire('key').catch(() => null), { what: 'the lock can be had again' });
});

it('a call whose Redis is stopped is rejected at the end of a shorter waitMs, with the node that owes an answer [G127]', async () => {
  const locks = await open({ commandTimeoutMs: 20_000 });
  await (await locks.acquire('other')).release();
  server.pause();
  expect(await bounded(locks.acquire('key', { waitMs: 100, ttlMs: 60_000 }))).toMatchObject({
    ...UNAVAILABLE,
    causes: [
      {
        node: `127.0.0.1:${server.port}`,
        problem: expect.stringMatching(/^no answer for \d+ ms, and waitMs has passed$/),
      },
    ],
  });
  server.resume();
  await until(() => locks.size === 0, { what: 'the attempt that was given up has ended' });
  await noKeyIsLeft();
});

it('a call whose waitMs ends before its attempt on a Redlock names the nodes that keep it waiting, and no other [G63]', async () => {
  const [dead, hung, well] = await redisServers(3);
  const nodes = [dead!, hung!, well!];
  const locks = await openLocks({ redlock: nodes.map(({ url }) => url), commandTimeoutMs: 20_000 });
  await (await locks.acquire('other')).release();
  hung!.pause();
  await dead!.kill();
  expect(await bounded(locks.acquire('key', { waitMs: 500 }))).toMatchObject({
    ...UNAVAILABLE,
    causes: [
      { node: `127.0.0.1:${dead!.port}`, problem: expect.stringMatching(/^not connected .*ECONNREFUSED/) },
      { node: `127.0.0.1:${hung!.port}`, problem: expect.stringMatching(/^no answer for \d+ ms/) },
    ],
  });
  hung!.resume();
  await until(() => locks.size === 0, { what: 'the attempt that was given up has ended' });
});

it('a call rides out a connection that is lost for a moment [G46]', async () => {
  const proxy = await proxyTo(server);
  const locks = await openLocks({ redis: proxy.url });
  proxy.cut();
  expect((await locks.acquire('key')).isHeld).toBe(true);
});

async function waitingBehind(locks: LockService, count: number): Promise<Promise<unknown>[]> {
  const others = await open();
  await others.acquire('key', { ttlMs: 60_000 });
  const calls = Array.from({ length: count }, () => locks.acquire('key', { waitMs: 60_000 }));
  for (const call of calls) call.catch(() => {});
  await until(async () => (await locks.inspect('key'))?.waiters === count, { what: 'all wait' });
  return calls;
}

it('all waiters of a Redis that is stopped are rejected as unavailable, within the time of one attempt [G47]', async () => {
  const locks = await open();
  const calls = await waitingBehind(locks, 50);
  server.pause();
  const outcomes = await bounded(Promise.all(calls.map((call) => call.catch((error: unknown) => error))));
  expect(outcomes).toEqual(calls.map(() => expect.objectContaining(UNAVAILABLE)));
  server.resume();
  expect(locks.size).toBe(0);
});

it('a call that came during an attempt that fails tries for itself', async () => {
  const locks = await open();
  await (await locks.acquire('other')).release();
  server.pause();
  const first = locks.acquire('key');
  const startedAt = performance.now();
  await until(() => performance.now() > startedAt + 5, { what: 'the attempt is under way' });
  const second = locks.acquire('key').catch((error: unknown) => error);
  await expect(first).rejects.toMatchObject({ causes: [{ problem: 'no answer within 500 ms' }] });
  const problem = expect.stringContaining('an earlier command is still in flight') as string;
  expect(await second).toMatchObject({ ...UNAVAILABLE, causes: [{ problem }] });
  server.resume();
});

it('the first waiter gets the lock of a Redis that restarts empty, and the old holder learns that it is gone [G49]', async () => {
  const [locks, others] = [await open({ commandTimeoutMs: 5_000 }), await open()];
  const old = await others.acquire('key', { ttlMs: 3_000 });
  const waiting = locks.acquire('key', { waitMs: 60_000 });
  await server.restart();
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(old.fencingToken);
  await until(() => old.signal.aborted, { what: 'the old holder knows' });
  expect(old.signal.reason).toMatchObject({ reason: expect.stringMatching(/stolen|expired/) });
});

async function working(locks: LockService, end: () => unknown): Promise<{ call: Promise<unknown>; finish: Gate }> {
  const [begun, finish] = [new Gate(), new Gate()];
  const call = locks.withLock('key', { ttlMs: 60_000 }, async () => {
    begun.open();
    await finish.opened;
    return end();
  });
  call.catch(() => {});
  await begun.opened;
  return { call, finish };
}

it('the result of work whose Redis is stopped at its release is returned in bounded time, and no orphan is left [G50]', async () => {
  const locks = await open();
  const { call, finish } = await working(locks, () => 'result');
  server.pause();
  finish.open();
  expect(await bounded(call)).toBe('result');
  server.resume();
  await noKeyIsLeft();
});

it('the error of the work is thrown, not the error of the release, when Redis is killed [G44]', async () => {
  const locks = await open();
  const failure = new Error('from the work');
  const { call, finish } = await working(locks, () => Promise.reject(failure));
  await server.kill();
  finish.open();
  expect(await bounded(call)).toBe(failure);
});
