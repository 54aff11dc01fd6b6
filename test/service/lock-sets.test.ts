import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { LockContendedError, LockUnavailableError, type LockSet } from 'nest-redis-lock';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { scriptCalls } from '../support/script-calls.js';
import { proxyTo } from '../support/stage.js';
import { eventsOf, sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, untilQueued } = await sceneOfFile();

const areFree = async (...keys: string[]) =>
  (await Promise.all(keys.map((key) => server.keys(`lock:{${key}}`)))).every((found) => found.length === 0);

it('free locks are acquired in one round trip, each with a token of its own, in the order of their keys [G350]', async () => {
  const locks = await open();
  await locks.withLock('warm', () => Promise.resolve());
  await server.resetCalls();
  const set = await locks.acquireAll(['b', 'a', 'B', 'a']);
  expect(await scriptCalls(server)).toBeLessThanOrEqual(2); // the first of a tick travels alone
  expect(set.keys).toEqual(['B', 'a', 'b']);
  expect(set.isHeld).toBe(true);
  expect(set.get('a').key).toBe('a');
  expect(new Set(set.keys.map((key) => set.get(key).fencingToken)).size).toBe(3);
  expect(() => set.get('c')).toThrow(/get\("c"\) was called on the locks "B", "a", "b": pass one of these keys/);
  expect(await set.release()).toBe(true);
  expect(set.isHeld).toBe(false);
  expect(await areFree('a', 'b', 'B')).toBe(true);
});

it('while a set waits for a refused lock, it holds the free locks before it, and gives back the locks behind it [G351]', async () => {
  const [locks, others] = [await open(), await open()];
  const middle = await others.acquire('q2');
  const acquiring = locks.acquireAll(['q3', 'q1', 'q2']);
  await untilQueued('q2');
  expect(await areFree('q1')).toBe(false);
  expect(await areFree('q3')).toBe(true);
  await middle.release();
  const set = await acquiring;
  expect(set.isHeld).toBe(true);
  await set.release();
});

it('a call that gives up keeps nothing of its set [G352]', async () => {
  const [locks, others] = [await open(), await open()];
  const held = await others.acquire('g2');
  const gaveUp = await locks.acquireAll(['g1', 'g2', 'g3'], { waitMs: 500 }).catch((error: unknown) => error);
  expect(gaveUp).toBeInstanceOf(LockContendedError);
  expect(gaveUp).toMatchObject({ key: 'g2', holder: { pid: process.pid } });
  expect(await locks.tryAcquireAll(['g1', 'g2'])).toBeNull();
  const reason = new Error('enough');
  await expect(
    locks.acquireAll(['g1', 'g2'], { signal: AbortSignal.any([AbortSignal.timeout(20)]) }),
  ).rejects.toMatchObject({ name: 'TimeoutError' });
  await expect(locks.acquireAll(['g1'], { signal: AbortSignal.abort(reason) })).rejects.toBe(reason);
  await until(() => areFree('g1', 'g3'), { what: 'the locks to be given back' });
  expect(locks.size).toBe(0);
  await held.release();
});

it('a call whose time is over names no holder of a key of which the store has said nothing', async () => {
  const [proxy, others] = [await proxyTo(server), await open()];
  const locks = await openLocks({ redis: proxy.url });
  const held = await others.acquire('s1');
  const outcome = locks.acquireAll(['s1', 's2'], { waitMs: 1_000 }).catch((error: unknown) => error);
  await untilQueued('s1');
  await sleep(900); // an answer may take 200 ms before the one before it counts as outdated
  proxy.hold();
  await held.release();
  const refusal = await outcome;
  proxy.release();
  expect(refusal).toBeInstanceOf(LockUnavailableError);
  expect(refusal).toMatchObject({ key: 's2' });
  await until(() => areFree('s1', 's2'), { what: 'the locks to be given back' });
});

it('the loss of one aborts the signal of the set at once, and the others are kept until the work has ended [G353]', async () => {
  const locks = await open();
  const gate = new Gate();
  let set: LockSet | undefined;
  const running = locks.withLock(['l1', 'l2'], { ttlMs: 1_500 }, async (held) => {
    set = held;
    await gate.opened;
    return 'done';
  });
  const outcome = running.catch((error: unknown) => error);
  const held = await until(() => set, { what: 'the work to begin' });
  const lost = new Promise((resolve) => held.signal.addEventListener('abort', resolve));
  await server.command('DEL', 'lock:{l1}');
  await lost;
  expect(held.signal.reason).toMatchObject({ code: 'LOCK_LOST', key: 'l1' });
  expect(held.isHeld).toBe(false);
  expect(() => held.assertHeld()).toThrow(/"l1" is no longer held/);
  expect(held.get('l2').isHeld).toBe(true);
  gate.open();
  expect(await outcome).toMatchObject({ key: 'l1', outcome: { status: 'fulfilled', value: 'done' } });
  expect(held.remainingMs).toBe(0);
  expect(await areFree('l1', 'l2')).toBe(true);
});

it('a call under several locks names the one that it asks for [G354]', async () => {
  const locks = await open();
  await locks.withLock(['c1', 'c2'], async (set) => {
    expect(locks.current('c2')).toBe(set.get('c2'));
    expect(() => locks.current()).toThrow(/several locks: name one of "c1", "c2", as in current\("c2"\)/);
    await locks.withLock('c1', (again) => expect(again.fencingToken).toBe(set.get('c1').fencingToken));
    await locks.withLock(['c0', 'c1'], (inner) => expect(inner.get('c1').owner).toBe(set.get('c1').owner));
  });
  expect(await areFree('c0', 'c1', 'c2')).toBe(true);
});

it('a set that waits and then succeeds reports no contention [G355]', async () => {
  const [locks, others] = [await open(), await open()];
  const events = eventsOf(locks);
  const held = await others.acquire('e2');
  const acquiring = locks.acquireAll(['e1', 'e2']);
  await untilQueued('e2');
  await held.release();
  await (await acquiring).release();
  await until(() => events.filter(({ type }) => type === 'released').length === 2, { what: 'both releases' });
  expect(events.map(({ type }) => type)).not.toContain('contended');
  await others.withLock('e2', () => expect(locks.acquireAll(['e1', 'e2'], { waitMs: 400 })).rejects.toThrow('"e2"'));
  await until(() => events.some(({ type, key }) => type === 'contended' && key === 'e2'), { what: 'the refusal' });
});
