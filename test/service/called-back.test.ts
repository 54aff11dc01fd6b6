import { AsyncLocalStorage } from 'node:async_hooks';
import { tracingChannel, type TracingChannelSubscribers } from 'node:diagnostics_channel';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { Lock, LockEvent, LockObserver, LockService, RedisLockModuleOptions } from 'nest-redis-lock';
import { fromPromises } from 'nest-redis-lock/testing';
import { ToyBackend } from '../contract/toy-backend.js';
import { now } from '../support/claims.js';
import { openLocks, serviceOn } from '../support/open-locks.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server } = await sceneOfFile();

const request = new AsyncLocalStorage<string>();
const nothing = async () => {};

/** Whose code this is: the store of its async context, and whether it runs under the lock of the key. */
function whereabouts(locks: LockService, key: string): { in: string | undefined; isUnderLock: boolean } {
  const isUnder = () => {
    try {
      return locks.current(key).isHeld;
    } catch {
      return false;
    }
  };
  return { in: request.getStore(), isUnderLock: isUnder() };
}

const OUTSIDE = { in: undefined, isUnderLock: false };
const BESIDE_THE_LOCK = { in: 'a request', isUnderLock: false };

/** Releases a lock that was acquired by mistake, so that a failing test ends. */
async function isRefused(asked: Promise<Lock | null>): Promise<boolean> {
  const lock = await asked;
  await lock?.release();
  return lock === null;
}

const STORES: [string, () => RedisLockModuleOptions][] = [
  ['one Redis', () => ({ redis: server.url })],
  ['memory', () => ({ memory: true })],
];

describe.each(STORES)('what is notified (%s)', (store, options) => {
  it('an observer of events runs outside of the call that caused them, so a lock of that call is held for it, too [G500]', async () => {
    const locks = await openLocks({ ...options(), lockOrder: 'warn' });
    const elsewhere = await openLocks(options());
    const taken = await (store === 'memory' ? locks : elsewhere).acquire('taken');
    const seen = new Map<LockEvent['type'], object>();
    const asked: Promise<Lock | null>[] = [];
    const note = ({ type, key }: Pick<LockEvent, 'type' | 'key'>) => {
      if (key === 'A') return; // the result of this request
      if (!seen.has(type)) asked.push(locks.tryAcquire('A'));
      seen.set(type, whereabouts(locks, 'A'));
    };
    await request.run('a request', () =>
      locks.withLock('A', async () => {
        locks.events$.subscribe(note);
        await locks.withLock('B', () => locks.withLock('C', nothing));
        await locks.withLock('C', () => locks.withLock('B', nothing)); // a warning
        await expect(locks.acquire('taken', { waitMs: 0 })).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
        await locks.acquire('D');
        await locks.forceRelease('D');
        await until(() => seen.size === 5, { what: 'each kind of event' });
        expect(await Promise.all(asked.map(isRefused))).toEqual(asked.map(() => true));
      }),
    );
    await taken.release();
    expect(Object.fromEntries(seen)).toEqual({
      acquired: OUTSIDE,
      released: OUTSIDE,
      contended: OUTSIDE,
      lost: OUTSIDE,
      warning: OUTSIDE,
    });
  });

  it('the listener of a signal of a lock runs outside of the call that took the lock by force [G501]', async () => {
    const locks = await openLocks(options());
    const heard: object[] = [];
    const working = request.run('a request', () =>
      locks.withLock('A', async ({ signal: own }) => {
        const asked: Promise<Lock | null>[] = [];
        const other = await locks.acquire('B');
        const set = await locks.acquireAll(['C', 'D']);
        for (const { signal } of [other, set]) {
          signal.addEventListener('abort', () => {
            heard.push(whereabouts(locks, 'A'));
            asked.push(locks.tryAcquire('A'));
          });
        }
        own.addEventListener('abort', () => heard.push(whereabouts(locks, 'A')));
        await locks.forceRelease('B');
        await locks.forceRelease('C');
        await set.release();
        const refused = await Promise.all(asked.map(isRefused));
        await locks.forceRelease('A');
        return refused;
      }),
    );
    await expect(working).rejects.toMatchObject({ code: 'LOCK_LOST', outcome: { value: [true, true] } });
    expect(heard).toEqual([OUTSIDE, OUTSIDE, OUTSIDE]);
  });

  it('the listener of a leadership, and the observer of its states, run outside of the call that resigned [G502]', async () => {
    const locks = await openLocks(options());
    const heard: object[] = [];
    await request.run('a request', () =>
      locks.withLock('A', async () => {
        const leader = locks.leader('elected');
        const states: string[] = [];
        leader.state$.subscribe((state) => {
          states.push(state.status);
          heard.push(whereabouts(locks, 'A'));
          if (state.status !== 'leading' || states.includes('ending')) return;
          state.leadership.signal.addEventListener('abort', () => heard.push(whereabouts(locks, 'A')));
        });
        await until(() => leader.isLeader, { what: 'it leads' });
        leader.state$.subscribe(() => heard.push(whereabouts(locks, 'A'))).unsubscribe(); // the last one at once
        await leader.resign();
        await until(() => states.includes('ending'), { what: 'the term ends' });
      }),
    );
    expect(heard.length).toBeGreaterThanOrEqual(5);
    expect(heard).toEqual(heard.map(() => OUTSIDE));
  });

  it('the listener of closing runs outside of the call that closes the application [G510]', async () => {
    const locks = await openLocks(options());
    const heard: object[] = [];
    await request.run('a request', () =>
      locks.withLock('A', async ({ closing }) => {
        closing.addEventListener('abort', () => heard.push(whereabouts(locks, 'A')));
        locks.onModuleDestroy();
      }),
    );
    expect(heard).toEqual([OUTSIDE]);
  });
});

/** @returns the errors that are thrown from now on without a catch */
function uncaught(): unknown[] {
  const thrown: unknown[] = [];
  const listeners = process.listeners('uncaughtException');
  process.removeAllListeners('uncaughtException');
  process.on('uncaughtException', (error) => thrown.push(error));
  onTestFinished(() => {
    process.removeAllListeners('uncaughtException');
    for (const listener of listeners) process.on('uncaughtException', listener);
  });
  return thrown;
}

it('a store that throws when it is asked to extend one lock costs no other lock', async () => {
  const thrown = uncaught();
  const backend = fromPromises(new ToyBackend(now), now);
  const { extend } = backend;
  backend.extend = (request, done) => {
    if (request.grant.key === 'bad') throw new Error('of the store');
    extend.call(backend, request, done);
  };
  const locks = serviceOn(backend, { ttlMs: 1_000 });
  await locks.acquire('bad');
  const lock = await locks.acquire('good');
  const end = performance.now() + 3_000;
  await until(() => performance.now() > end, { what: 'three times the ttl has passed' });
  expect(lock.isHeld).toBe(true);
  expect(thrown).toEqual([expect.objectContaining({ message: 'of the store' })]);
});

it('observers and listeners that throw cost no lock and no result [G503]', async () => {
  const thrown = uncaught();
  const broken = () => {
    throw new Error('of an observer');
  };
  const locks = await openLocks({ memory: true });
  locks.events$.subscribe(broken);
  const work = locks.withLock('A', async ({ signal }) => {
    signal.addEventListener('abort', broken);
    await locks.forceRelease('A');
    expect(signal.aborted).toBe(true);
    return 'done';
  });
  await expect(work).rejects.toMatchObject({ code: 'LOCK_LOST', outcome: { value: 'done' } });
  expect(await locks.withLock('A', async () => 'done')).toBe('done');
  await until(() => thrown.length >= 4, { what: 'the errors' });
  expect(thrown).toEqual(thrown.map(() => expect.objectContaining({ message: 'of an observer' })));
  expect(locks.stats()).toEqual([]);
});

it('an observer of telemetry has the async context of the call, but none of its locks, from its beginning to its end [G504]', async () => {
  const heard: Record<string, object[]> = {};
  const asked: Promise<Lock | null>[] = [];
  let isAsking = false;
  const note = (what: string) => {
    if (isAsking || !locks) return;
    (heard[what] ??= []).push(whereabouts(locks, 'A'));
    isAsking = true; // it is also observed
    asked.push(locks.tryAcquire('A'));
    isAsking = false;
  };
  const observation = (what: string) => {
    note(what);
    return {
      run: <T>(work: () => T) => {
        note(`${what}: run`);
        return work();
      },
      end: () => note(`${what}: end`),
    };
  };
  const observer: LockObserver = {
    acquire: ({ key }) => (key === 'A' ? { run: (work) => work(), end: () => {} } : observation('acquire')),
    hold: ({ key }) => observation(`hold ${key}`),
    extended: () => note('extended'),
    close: () => {},
  };
  let locks: LockService | undefined;
  const service = await openLocks({ memory: true, telemetry: { open: () => observer } });
  const inWork: object[] = [];
  await request.run('a request', () =>
    service.withLock('A', async (lock) => {
      locks = service;
      await lock.extend();
      await service.withLock(['B', 'C'], async () => void inWork.push(whereabouts(service, 'A')));
      await expect(service.tryAcquire('A', { reentrant: false })).rejects.toMatchObject({
        code: 'LOCK_SELF_DEADLOCK',
      });
      expect(await Promise.all(asked.map(isRefused))).toEqual(asked.map(() => true));
      asked.length = 0;
      inWork.push(whereabouts(service, 'A'));
    }),
  );
  await Promise.all(asked.map(isRefused));
  expect(inWork).toEqual([
    { in: 'a request', isUnderLock: true },
    { in: 'a request', isUnderLock: true },
  ]);
  const { extended, ...ofCalls } = heard;
  expect(extended).toEqual([expect.objectContaining({ isUnderLock: false })]);
  expect(ofCalls).toEqual({
    acquire: [BESIDE_THE_LOCK],
    'acquire: run': [BESIDE_THE_LOCK],
    'acquire: end': [BESIDE_THE_LOCK],
    'hold B': [BESIDE_THE_LOCK],
    'hold B: run': [BESIDE_THE_LOCK],
    'hold B: end': [BESIDE_THE_LOCK],
    'hold A: end': [BESIDE_THE_LOCK],
  });
});

it('subscribers of the tracing channels have the async context of the call, but no lock of any registration [G511]', async () => {
  const [locks, others] = [await openLocks({ memory: true }), await openLocks({ memory: true }, 'others')];
  const heard = new Map<string, object[]>();
  const asked: Promise<Lock | null>[] = [];
  let isAsking = false;
  for (const name of ['nest-redis-lock:acquire', 'nest-redis-lock:hold']) {
    const note = (at: string) => (trace: { key: string }) => {
      if (isAsking || trace.key !== 'B') return;
      heard.set(`${name} ${at}`, [whereabouts(locks, 'A'), whereabouts(others, 'A')]);
      isAsking = true;
      asked.push(locks.tryAcquire('A'), others.tryAcquire('A'));
      isAsking = false;
    };
    const subscribers = Object.fromEntries(
      ['start', 'end', 'asyncStart', 'asyncEnd', 'error'].map((at) => [at, note(at)]),
    ) as unknown as TracingChannelSubscribers<{ key: string }>;
    const channel = tracingChannel<unknown, { key: string }>(name);
    channel.subscribe(subscribers);
    onTestFinished(() => channel.unsubscribe(subscribers));
  }
  const inWork: object[] = [];
  await request.run('a request', () =>
    locks.withLock('A', () =>
      others.withLock('A', async () => {
        const failing = locks.withLock('B', async () => {
          inWork.push(whereabouts(locks, 'A'), whereabouts(others, 'A'), whereabouts(locks, 'B'));
          await expect(locks.withLock('B', { reentrant: false }, nothing)).rejects.toThrow('"B"');
          throw new Error('of the work');
        });
        await expect(failing).rejects.toThrow('of the work');
        expect(await Promise.all(asked.map(isRefused))).toEqual(asked.map(() => true));
      }),
    ),
  );
  expect(inWork).toEqual(inWork.map(() => ({ in: 'a request', isUnderLock: true })));
  expect(heard.size).toBe(10);
  for (const each of heard.values()) expect(each).toEqual([BESIDE_THE_LOCK, BESIDE_THE_LOCK]);
});
