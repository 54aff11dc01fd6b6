import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from 'vitest';
import type { AcquireOptions, Lock, LockService, LockSet } from 'nest-redis-lock';
import { Gate } from '../support/gate.js';
import { scriptCalls } from '../support/script-calls.js';
import { blockEventLoop } from '../support/stage.js';
import { eventsOf, sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const TTL_MS = 3_000;
/** The delay of commands and timers, in milliseconds. */
const SLACK_MS = 60;

const { server, open, openBehindProxy, ownerOf, isFree, leftMs, untilQueued } = await sceneOfFile({ ttlMs: TTL_MS });

/** The time at which the signal of a lock aborts. */
function aborted({ signal }: Pick<Lock | LockSet, 'signal'>): Promise<number> {
  return new Promise((resolve) => signal.addEventListener('abort', () => resolve(performance.now())));
}

/**
 * Acquires a lock that was free.
 * @returns also the time of the grant
 */
async function acquire(locks: LockService, key: string, options: AcquireOptions) {
  const lock = await locks.acquire(key, options);
  return { lock, grantedAt: performance.now() };
}

function expectAbout(ms: number, expected: number): void {
  expect(ms).toBeGreaterThanOrEqual(expected - SLACK_MS);
  expect(ms).toBeLessThanOrEqual(expected + SLACK_MS);
}

const overstayed = expect.objectContaining({ code: 'LOCK_LOST', reason: 'overstayed' }) as Error;

it('work that holds its lock for longer than maxHoldMs has its signal aborted when that time is over, and its call rejects once it has ended [G800]', async () => {
  const locks = await open();
  const events = eventsOf(locks);
  const gate = new Gate();
  const begun = new Gate();
  let lock!: Lock;
  const call = locks.withLock('hangs', { maxHoldMs: 5_000 }, async (given) => {
    lock = given;
    begun.open();
    await gate.opened;
    return 'done';
  });
  await begun.opened;
  const begunAt = performance.now();
  expectAbout((await aborted(lock)) - begunAt, 5_000);
  expect(lock.signal.reason).toEqual(overstayed);
  expect([lock.isHeld, lock.remainingMs]).toEqual([false, 0]);
  expect(() => lock.assertHeld()).toThrow(overstayed);
  await expect(lock.extend()).rejects.toEqual(overstayed);
  const lost = await until(() => events.find(({ type }) => type === 'lost'), { what: 'the event' });
  expect(lost).toMatchObject({ key: 'hangs', owner: lock.owner, reason: 'overstayed' });
  expectAbout((lost as { heldMs: number }).heldMs, 5_000);
  gate.open();
  await expect(call).rejects.toMatchObject({
    code: 'LOCK_LOST',
    reason: 'overstayed',
    outcome: { status: 'fulfilled', value: 'done' },
    message: expect.stringContaining('its work held it for longer than maxHoldMs') as string,
  });
  expect(events.filter(({ type }) => type === 'lost' || type === 'released')).toEqual([lost]);
});

it('after a pause of its process a lock whose maxHoldMs has passed is not held in the first line that runs [G807]', async () => {
  const locks = await open();
  const lock = await locks.acquire('blocked', { maxHoldMs: 100 });
  const { signal } = lock;
  blockEventLoop(200);
  expect(lock.isHeld).toBe(false);
  expect(signal.reason).toEqual(overstayed);
  await lock.release();

  const ended = await locks.acquire('ended', { maxHoldMs: 100 });
  blockEventLoop(200);
  expect(await ended.release()).toBe(true); // nothing has asked before
  expect(await isFree('ended')).toBe(true);
  expect(() => ended.assertHeld()).toThrow(overstayed);

  const stalled = await locks.acquire('stalled', { ttlMs: 300, maxHoldMs: 10_000 });
  blockEventLoop(600);
  expect(() => stalled.assertHeld()).toThrow(expect.objectContaining({ reason: 'stalled' }));
});

it('a lock that was held for longer than maxHoldMs is not extended any more, and others get it when its lease has ended, not before [G801]', async () => {
  const [locks, others] = [await open(), await open()];
  const { lock } = await acquire(locks, 'runs-on', { maxHoldMs: 4_000 });
  const waiting = others.acquire('runs-on', { waitMs: 60_000 });
  const abortedAt = await aborted(lock);
  const runsForMs = await leftMs('runs-on');
  expect(runsForMs).toBeGreaterThan(TTL_MS / 2);
  const next = await waiting;
  const waitedMs = performance.now() - abortedAt;
  expectAbout(waitedMs, runsForMs);
  expect(waitedMs).toBeLessThan(TTL_MS + SLACK_MS);
  expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  expect(await lock.release()).toBe(false);
  expect([next.isHeld, await ownerOf('runs-on')]).toEqual([true, next.owner]);
  await next.release();
  expect(locks.size).toBe(0);
});

it('a lock that was held for longer than maxHoldMs is free as soon as its work has ended [G802]', async () => {
  const [locks, others] = [await open(), await open()];
  let waiting!: Promise<Lock>;
  const call = locks.withLock('ends', { maxHoldMs: 4_000 }, async ({ signal }) => {
    waiting = others.acquire('ends', { waitMs: 60_000 });
    await sleep(60_000, undefined, { signal });
  });
  await expect(call).rejects.toMatchObject({ reason: 'overstayed', outcome: { status: 'rejected' } });
  const endedAt = performance.now();
  const next = await waiting;
  expect(performance.now() - endedAt).toBeLessThan(SLACK_MS);
  await next.release();

  const { lock } = await acquire(locks, 'by-hand', { maxHoldMs: 1_000 });
  await aborted(lock);
  expect(await lock.release()).toBe(true);
  expect(await isFree('by-hand')).toBe(true);
  expect(locks.size).toBe(0);
});

it('a release by a listener that is told of the end of maxHoldMs amid another release counts once', async () => {
  const locks = await open();
  const call = locks.withLock('twice', { maxHoldMs: 1_000 }, async (lock) => {
    const nested = await locks.acquire('twice');
    nested.signal.addEventListener('abort', () => void nested.release());
    blockEventLoop(1_500);
    await nested.release();
    expect(await ownerOf('twice')).toBe(lock.owner);
  });
  await expect(call).rejects.toMatchObject({ reason: 'overstayed', outcome: { status: 'fulfilled' } });
});

it('a lock that was held for longer than maxHoldMs is not passed on within the process while its work may run [G803]', async () => {
  const [locks, others] = [await open({ cohortMs: 60_000 }), await open()];
  const turns = async (key: string) => {
    const holder = await others.acquire(key);
    const first = locks.acquire(key, { maxHoldMs: 500 });
    const second = locks.acquire(key, { waitMs: 60_000 });
    await untilQueued(key);
    await holder.release(); // for the turns of both
    return { first: await first, second };
  };
  const hanging = await turns('hanging');
  const abortedAt = await aborted(hanging.first);
  const runsForMs = await leftMs('hanging');
  expect((await hanging.second).owner).not.toBe(hanging.first.owner);
  expectAbout(performance.now() - abortedAt, runsForMs);

  const ending = await turns('ending');
  await aborted(ending.first);
  const endedAt = performance.now();
  await ending.first.release();
  expect((await ending.second).owner).not.toBe(ending.first.owner);
  expect(performance.now() - endedAt).toBeLessThan(SLACK_MS);
});

it('a lock that was held for longer than maxHoldMs is not held again by the answer to an extension that was sent before [G808]', async () => {
  const { proxy, locks } = await openBehindProxy({ watchdog: false, commandTimeoutMs: 5_000 });
  const others = await open();
  const { lock } = await acquire(locks, 'extending', { maxHoldMs: 1_000 });
  const aborting = aborted(lock);
  await sleep(900);
  proxy.hold();
  const extending = lock.extend();
  const refused = expect(extending).rejects.toEqual(overstayed);
  const abortedAt = await aborting;
  proxy.release();
  await refused;
  expect(lock.isHeld).toBe(false);
  expect(await leftMs('extending')).toBeGreaterThan(TTL_MS - 200);
  const next = await others.acquire('extending', { waitMs: 60_000 });
  const waitedMs = performance.now() - abortedAt;
  expect(waitedMs).toBeGreaterThan(TTL_MS - 200);
  expect(waitedMs).toBeLessThan(TTL_MS + SLACK_MS);
  expect(lock.isHeld).toBe(false);
  await next.release();
});

it('a shutdown neither waits for work that holds its lock for longer than maxHoldMs, nor gives the lock back before its lease has ended [G809]', async () => {
  const locks = await open({ shutdownTimeoutMs: 20_000 });
  const others = await open();
  const { lock } = await acquire(locks, 'closing', { maxHoldMs: 1_000 });
  await aborted(lock);
  const closingAt = performance.now();
  await locks.onApplicationShutdown();
  expect(performance.now() - closingAt).toBeLessThan(500);
  expect(await ownerOf('closing')).toBe(lock.owner);
  expect(await others.tryAcquire('closing')).toBeNull();
  expect(await lock.release()).toBe(false);
  expect(await (await others.acquire('closing')).release()).toBe(true);
});

it('the time of maxHoldMs begins when the call has its lock, even one that is handed over or passed on within the process [G804]', async () => {
  const [locks, others] = [await open({ cohortMs: 60_000 }), await open()];
  const holder = await others.acquire('turns');
  const first = locks.acquire('turns', { maxHoldMs: 1_000 });
  const second = locks.acquire('turns', { maxHoldMs: 1_000 });
  await untilQueued('turns');
  await sleep(1_700); // the hand-over counts from an answer that is some time old
  await holder.release();
  const handedOver = await first;
  const handedOverAt = performance.now();
  await sleep(800);
  expect(handedOver.isHeld).toBe(true);
  expectAbout(handedOver.remainingMs, 1_000 - (performance.now() - handedOverAt));
  expect(await handedOver.release()).toBe(true);
  const passedOn = await second;
  const passedOnAt = performance.now();
  expect(passedOn.owner).toBe(handedOver.owner);
  expectAbout((await aborted(passedOn)) - passedOnAt, 1_000);
  expect(passedOn.signal.reason).toEqual(overstayed);
  await passedOn.release();
});

it('the time of maxHoldMs of a set begins when all of its locks are acquired, and ends for all of them [G805]', async () => {
  const [locks, others] = [await open(), await open()];
  const events = eventsOf(locks);
  const held = await others.acquire('s2');
  const acquiring = locks.acquireAll(['s1', 's2'], { maxHoldMs: 1_000 });
  await untilQueued('s2');
  await sleep(1_700);
  await held.release();
  const set = await acquiring;
  const grantedAt = performance.now();
  expectAbout((await aborted(set)) - grantedAt, 1_000);
  expect(set.signal.reason).toEqual(overstayed);
  expect(set.keys.map((key) => set.get(key).isHeld)).toEqual([false, false]);
  await until(() => events.filter(({ type }) => type === 'lost').length === 2, { what: 'both events' });
  expect([await isFree('s1'), await isFree('s2')]).toEqual([false, false]);
  expect(await set.release()).toBe(true);
  expect([await isFree('s1'), await isFree('s2')]).toEqual([true, true]);
});

it('an extension of the lease does not make the time of maxHoldMs longer [G810]', async () => {
  const locks = await open();
  const { lock, grantedAt } = await acquire(locks, 'extended', { maxHoldMs: 2_000 });
  const aborting = aborted(lock);
  await sleep(1_000);
  await lock.extend(20_000);
  expectAbout(lock.remainingMs, 1_000);
  expectAbout((await aborting) - grantedAt, 2_000);
  await lock.release();
});

it('a nested call with a maxHoldMs of its own ends the lock when that is over first [G806]', async () => {
  const locks = await open();
  const gate = new Gate();
  let outer!: Lock;
  let inner!: Promise<void>;
  const call = locks.withLock('nested', { maxHoldMs: 20_000 }, async (lock) => {
    outer = lock;
    inner = locks.withLock('nested', { maxHoldMs: 500 }, () => gate.opened);
    await inner;
  });
  await until(() => outer !== undefined, { what: 'the work to begin' });
  const begunAt = performance.now();
  expectAbout((await aborted(outer)) - begunAt, 500);
  gate.open();
  await expect(inner).rejects.toEqual(overstayed);
  await expect(call).rejects.toMatchObject({ reason: 'overstayed', outcome: { status: 'fulfilled' } });
  expect(await isFree('nested')).toBe(true);
});

it('a nested call has no more time than the maxHoldMs of the outer call, even if the outer call has ended before it [G811]', async () => {
  const locks = await open();
  let nested!: Lock;
  let begunAt!: number;
  await locks.withLock('outer', { maxHoldMs: 2_000 }, async () => {
    begunAt = performance.now();
    nested = await locks.acquire('outer', { maxHoldMs: 20_000 });
  });
  expect(nested.isHeld).toBe(true);
  expectAbout((await aborted(nested)) - begunAt, 2_000);
  expect(nested.signal.reason).toEqual(overstayed);
  expect(await nested.release()).toBe(true);
  expect(await isFree('outer')).toBe(true);
});

it('a nested call that ends before its maxHoldMs leaves the lock the time of the outer call', async () => {
  const locks = await open();
  const { lock, begunAt } = await locks.withLock('lifted', { maxHoldMs: 3_000, onLost: 'ignore' }, async (held) => {
    const begun = performance.now();
    for (let call = 0; call < 3; call++) await locks.withLock('lifted', { maxHoldMs: 600 }, () => sleep(500));
    expect(held.isHeld).toBe(true);
    await aborted(held);
    return { lock: held, begunAt: begun };
  });
  expectAbout(performance.now() - begunAt, 3_000);
  expect(lock.signal.reason).toEqual(overstayed);
});

it('a lock that was held for too long is kept for the longer holdMs of a nested call [G812]', async () => {
  const [locks, others] = [await open(), await open()];
  const call = locks.withLock('kept', { maxHoldMs: 1_000 }, async ({ signal }) => {
    await locks.withLock('kept', { holdMs: 20_000 }, () => {});
    await sleep(60_000, undefined, { signal });
  });
  await expect(call).rejects.toEqual(overstayed);
  expect(await others.inspect('kept')).toMatchObject({ keptUntil: expect.any(Date) as Date });
  expect(await leftMs('kept')).toBeGreaterThan(18_000);
});

it.each<[message: string, options: object]>([
  ['maxHoldMs must be a whole number of milliseconds from 1 to 2147483647: got 0.', { maxHoldMs: 0 }],
  ['maxHoldMs must be a whole number of milliseconds from 1 to 2147483647: got "5s".', { maxHoldMs: '5s' }],
  ['maxHoldMs must be a whole number of milliseconds from 1 to 2147483647: got Infinity.', { maxHoldMs: Infinity }],
  ['maxHoldMs must be at least holdMs: got maxHoldMs 500 with holdMs 501.', { maxHoldMs: 500, holdMs: 501 }],
  ['There is no option "maxHold": expected', { maxHold: 5 }],
])('a call is refused with "%s", and nothing is sent', async (message, options) => {
  const locks = await open();
  await server.resetCalls();
  await expect(locks.withLock('refused', options, () => 'ran')).rejects.toThrow(message);
  await expect(locks.acquire('refused', options)).rejects.toMatchObject({ code: 'LOCK_OPTIONS' });
  expect(await scriptCalls(server)).toBe(0);
});
