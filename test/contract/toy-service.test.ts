import { setTimeout as delay } from 'node:timers/promises';
import { expect, it } from 'vitest';
import { LockUnavailableError } from 'nest-redis-lock';
import { type AcquireOutcome, fromPromises, type PromiseBackend } from 'nest-redis-lock/testing';
import { composeLocks } from '../../lib/compose/composition.js';
import { BACKEND } from '../../lib/compose/backend-lock-options.js';
import { now } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { serviceOn } from '../support/open-locks.js';
import { warningsOf } from '../support/scene.js';
import { until } from '../support/until.js';
import { ToyBackend } from './toy-backend.js';
import { ToyWatched } from './toy-watched.js';

it('a set that has waited for one lock waits for the others only for the rest of its time, even if the store does not answer [G499]', async () => {
  const toy = new ToyBackend(now);
  const { acquire } = toy;
  let asked = 0;
  toy.acquire = (request) => (request.key === 'b' && asked++ > 0 ? new Promise(() => {}) : acquire.call(toy, request));
  toy.attemptTimeoutMs = () => 10_000;
  const [one, other] = [serviceOn(fromPromises(toy, now)), serviceOn(fromPromises(toy, now))];
  const holder = await one.acquire('a');
  const ended: string[] = [];
  const refused = async (name: string, call: Promise<unknown>) => {
    await expect(call).rejects.toMatchObject({ code: expect.stringMatching(/^LOCK_(CONTENDED|UNAVAILABLE)$/) });
    ended.push(name);
  };
  const set = refused('set', other.acquireAll(['a', 'b'], { waitMs: 1_000 }));
  const half = performance.now() + 600;
  await until(() => performance.now() > half, { what: 'more than half of that is over' });
  await holder.release();
  await until(() => asked === 2, { what: 'it asks for the second one again' });
  const single = refused('single', other.acquire('b', { waitMs: 700 }));
  await Promise.all([set, single]);
  expect(ended).toEqual(['set', 'single']);
});

it('a store that wakes waiting calls, and keeps no queue, does not show that nobody waits for a lock [G1065]', async () => {
  const waitersOf = async (keepsPlaces?: boolean) => {
    const nothing = () => {};
    const listening = { isListening: () => true, listen: nothing, checkListening: nothing, leave: nothing };
    const toy = Object.assign(new ToyBackend(now), { waitQueue: { handsOver: false, keepsPlaces, ...listening } });
    const locks = serviceOn(fromPromises(toy, now));
    const lock = await locks.acquire('key');
    const waiters = (await locks.inspect('key'))?.waitingProcesses;
    await lock.release();
    return waiters;
  };
  expect(await waitersOf()).toEqual([]);
  expect(await waitersOf(false)).toBeUndefined();
});

it('the events of a service end though its store fails to close, and the application gets that failure', async () => {
  const failure = new Error('of the store');
  const toy = Object.assign(new ToyBackend(now), { close: () => Promise.reject(failure) });
  const locks = serviceOn(fromPromises(toy, now));
  let isComplete = false;
  locks.events$.subscribe({ complete: () => (isComplete = true) });
  await expect(locks.onApplicationShutdown()).rejects.toBe(failure);
  expect(isComplete).toBe(true);
  locks.onApplicationShutdown = async () => {}; // it has closed
});

/** Two services on one store: one waits for what the other holds. */
const pairOn = (toy: PromiseBackend) => [serviceOn(fromPromises(toy, now)), serviceOn(fromPromises(toy, now))] as const;

/** Of two services on a store, one waits for the lock that the other holds; `pass` lets both have had it. */
async function waitingOn(toy: PromiseBackend, waitMs?: number) {
  const [one, other] = pairOn(toy);
  const holder = await one.acquire('key');
  const waiting = other.acquire('key', { waitMs });
  const pass = async () => {
    await holder.release();
    await (await waiting).release();
  };
  return { holder, waiting, pass };
}

const never = () => new Promise<never>(() => {});
const asked = ({ log }: ToyWatched) => log.filter((entry) => entry === 'acquire key').length;

it('a waiting call asks a store with a watch again only when the watch says that the lock may be free [G1090]', async () => {
  const toy = new ToyWatched(now);
  const { pass } = await waitingOn(toy);
  await until(() => toy.watches === 1, { what: 'the call has it watch' });
  await delay(300);
  expect(asked(toy)).toBeLessThanOrEqual(1 + 3); // the holder; the call, with a place, and once more when the watch began
  const before = asked(toy);
  await pass();
  expect(asked(toy)).toBe(before + 1);
});

/** Makes the watches that begin from now on fail, this many times. */
function failing(toy: ToyWatched, times: number): void {
  const { watch } = ToyWatched.prototype;
  toy.watch = (signal) => {
    if (times-- > 0) throw new Error('no such stream');
    return watch.call(toy, signal);
  };
}

it('waiting calls poll while the watch of their store is broken, and are notified of their turns when it has begun again [G1094]', async () => {
  const toy = new ToyWatched(now);
  const [one, other] = pairOn(toy);
  const warnings = warningsOf(other);
  for (let round = 0; round < 2; round++) {
    const holder = await one.acquire('key');
    const waiting = other.acquire('key');
    await until(() => toy.watches === 1, { what: 'the store watches' });
    await delay(3_500); // a watch that has lasted may break
    expect(warnings).toHaveLength(round);
    failing(toy, 4);
    toy.break();
    await until(() => toy.watches === 0, { what: 'the watch has ended' });
    const before = asked(toy);
    await delay(300); // before the next check
    expect(asked(toy)).toBeGreaterThan(before + 2);
    await until(() => toy.watches === 1, { what: 'the store watches again' });
    const then = asked(toy);
    await holder.release();
    await (await waiting).release();
    expect(asked(toy)).toBeLessThanOrEqual(then + 2); // once because it watches again, and once because the lock is free
  }
  expect(warnings).toHaveLength(2);
});

it('a watch that failed once, and then lasts, ends when its service closes, without a warning', async () => {
  for (const lastsMs of [100, 12_000]) {
    const toy = new ToyWatched(now);
    failing(toy, 1);
    const [one, other] = pairOn(toy);
    const warnings = warningsOf(other);
    const holder = await one.acquire('key');
    await expect(other.acquire('key', { waitMs: 20 })).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
    await until(() => toy.watches === 1, { what: 'the store watches' });
    await delay(lastsMs);
    expect(toy.log.filter((entry) => entry.startsWith('watch'))).toEqual(['watch']);
    await holder.release();
    await other.onApplicationShutdown();
    expect(warnings).toEqual([]);
  }
});

it('waiting calls ask again when the watch of their store says once more that it reports every lock from then on', async () => {
  const toy = new ToyWatched(now);
  const again = new Gate();
  toy.watch = async function* () {
    yield undefined;
    yield again.opened as Promise<undefined>;
    yield await never();
  };
  const { holder, waiting } = await waitingOn(toy);
  await until(() => asked(toy) >= 3, { what: 'the call waits' });
  await delay(1);
  const before = asked(toy);
  await holder.release();
  again.open();
  const had = waiting.then((lock) => lock.release()).then(() => 'had');
  expect(await Promise.race([had, delay(500, 'late')])).toBe('had'); // a check comes after a second
  expect(asked(toy)).toBe(before + 1);
});

it('a silent watch is begun again when a wake-up did not come [G1091]', async () => {
  const toy = new ToyWatched(now);
  const began = () => toy.log.filter((entry) => entry === 'watch').length;
  const { holder, waiting } = await waitingOn(toy, 60_000);
  await until(() => toy.watches === 1, { what: 'the store watches' });
  await delay(11_000);
  expect(began()).toBe(1);
  await ToyBackend.prototype.forceRelease.call(toy, 'key'); // nobody is notified
  await (await waiting).release();
  await until(() => began() === 2, { what: 'it is begun again' });
  await holder.release();
});

const endless = (value: unknown) =>
  async function* () {
    for (;;) yield value;
  };

it.each<[what: string, problem: string, watch: (signal: AbortSignal) => unknown]>([
  [
    'throws at once',
    'no such stream',
    () => {
      throw new Error('no such stream');
    },
  ],
  ['is not iterable', 'itera', () => ({})], // the wording is that of the runtime
  [
    'ends at once',
    'it has ended',
    async function* () {
      yield undefined;
    },
  ],
  ['yields something else', 'it must yield keys, or undefined: got number', endless(5)],
  [
    'yields nothing, and ignores its signal',
    'it has not yielded undefined within 10000 ms',
    async function* () {
      yield await never();
    },
  ],
  [
    'rejects in its end, too',
    'the next failed',
    () => ({
      [Symbol.asyncIterator]: () => ({
        next: () => Promise.reject(new Error('the next failed')),
        return: () => Promise.reject(new Error('the end failed')),
      }),
    }),
  ],
])(
  'waiting calls get their locks although the watch of their store %s, which is restarted only after pauses, with one warning [G1092]',
  async (_what, problem, watch) => {
    const toy = new ToyWatched(now);
    let begun = 0;
    const broken = (signal: AbortSignal) => (begun++, watch(signal));
    const [one, other] = pairOn(Object.assign(toy, { watch: broken as PromiseBackend['watch'] }));
    const warnings = warningsOf(other);
    for (let round = 0; round < 3; round++) {
      const holder = await one.acquire('key');
      const waiting = other.acquire('key', { waitMs: 60_000 });
      await delay(6_000);
      await holder.release();
      await (await waiting).release();
    }
    expect(begun).toBeLessThan(12);
    expect(warnings).toEqual([expect.stringContaining(problem)]);
  },
);

it('a watch that keeps saying that it may have missed some locks does not make calls ask without a pause', async () => {
  const watch = async function* () {
    for (;;) yield undefined;
  };
  const toy = Object.assign(new ToyWatched(now), { watch });
  const { pass } = await waitingOn(toy);
  await delay(1_000);
  expect(asked(toy)).toBeLessThanOrEqual(60);
  await pass();
});

it.each<[how: string, make: () => ToyBackend, most: number]>([
  ['asks after pauses', () => new ToyBackend(now), 30],
  ['hears when the lock may be free', () => new ToyWatched(now), 20],
])(
  'a call that %s does not ask without a pause, though its store says each time that the lease ends at once [G1142]',
  async (_how, make, most) => {
    const toy = make();
    const { acquire } = toy;
    let count = 0;
    toy.acquire = async (request) => {
      count++;
      const outcome = await acquire.call(toy, request);
      return outcome.status === 'contended' ? { ...outcome, remainingMs: [0, 3, -5][count % 3]! } : outcome;
    };
    const { pass } = await waitingOn(toy, 60_000);
    await delay(3_000);
    expect(count).toBeLessThanOrEqual(most);
    await pass();
  },
);

it('a polling call asks when the lease of the holder ends, and again at once if the store is a little behind', async () => {
  const toy = new ToyBackend(now);
  const [one, other] = pairOn(toy);
  const holder = await one.acquire('key', { ttlMs: 3_000, watchdog: false });
  const { acquire } = toy;
  let late = 0;
  toy.acquire = async (request) => {
    const outcome = await acquire.call(toy, request);
    if (outcome.status !== 'acquired' || late++ === 2) return outcome;
    await toy.release(outcome.grant, {});
    return { status: 'contended', owner: holder.key, remainingMs: 0, isKept: false, queued: false };
  };
  const since = performance.now();
  const lock = await other.acquire('key', { waitMs: 60_000 });
  expect(performance.now() - since).toBeLessThan(3_030);
  expect(late).toBe(3);
  await lock.release();
});

it('an outage without a reason from the store does not look like an application that closes [G1143]', async () => {
  const backend = Object.assign(fromPromises(new ToyBackend(now), now), {
    acquire: (_request: unknown, done: (outcome: AcquireOutcome) => void) =>
      void Promise.resolve().then(() => done({ status: 'unavailable', causes: [] })),
  });
  const error = await serviceOn(backend)
    .acquire('key')
    .catch((reason: unknown) => reason);
  expect(error).toMatchObject({ causes: [{ node: 'the store', problem: 'it gave no reason' }] });
});

it('a watch that never stops yielding keys leaves time for calls', async () => {
  let yielded = 0;
  const watch = async function* () {
    for (; ; yielded++) yield 'key';
  };
  const { pass } = await waitingOn(Object.assign(new ToyWatched(now), { watch }));
  await delay(100);
  expect(yielded).toBeLessThanOrEqual(100 * 100);
  await pass();
});

it.each<
  [what: string, end: string, watch: (toy: ToyWatched, signal: AbortSignal) => AsyncGenerator<string | undefined>]
>([
  [
    'ends slowly',
    'left',
    async function* (toy, signal) {
      yield* ToyWatched.prototype.watch.call(toy, signal);
      await delay(50);
      toy.log.push('left');
    },
  ],
  [
    'ignores its signal',
    'left',
    async function* (toy) {
      try {
        yield undefined;
        for (;;) {
          await delay(50);
          yield 'key';
        }
      } finally {
        toy.log.push('left');
      }
    },
  ],
  [
    'does not end',
    'acquire key',
    async function* () {
      yield undefined;
      yield await never();
    },
  ],
])(
  'a service that closes ends the watch of its store, and then closes the store, though the watch %s [G1093]',
  async (_what, end, watch) => {
    const toy = new ToyWatched(now);
    toy.watch = (signal) => watch(toy, signal);
    const [one, other] = pairOn(toy);
    await one.acquire('key');
    await expect(other.acquire('key', { waitMs: 20 })).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
    await other.onApplicationShutdown();
    expect(toy.log.slice(-2)).toEqual([end, 'close']);
  },
);

it('a store of an application has a second for an operation, or what commandTimeoutMs says', async () => {
  for (const [commandTimeoutMs, ms] of [
    [undefined, 1_000],
    [30, 30],
  ]) {
    const backend = () => Object.assign(new ToyBackend(now), { inspect: never });
    const { service } = await composeLocks(BACKEND, { backend, commandTimeoutMs, lazyConnect: true }).open();
    expect((await service.ping()).problems).toMatchObject([{ problem: `no answer within ${ms} ms` }]);
    await service.onApplicationShutdown();
  }
});

it.each<[what: string, close: () => Promise<void>]>([
  ['never settles', never],
  ['rejects', () => Promise.reject(new Error('it cannot close'))],
])('a start that fails says why, though closing its store %s [G1102]', async (_what, close) => {
  const failing = (store: Partial<PromiseBackend>, options = {}) => {
    const backend = () => Object.assign(new ToyBackend(now), { close, ...store });
    return composeLocks(BACKEND, { backend, connectTimeoutMs: 100, ...options }).open();
  };
  const down = () => Promise.reject(new Error('connection refused'));
  await expect(failing({ inspect: down })).rejects.toThrow(LockUnavailableError);
  await expect(failing({}, { fair: true })).rejects.toThrow('fair needs a queue that hands locks over');
  await expect(failing({ attemptTimeoutMs: () => Infinity })).rejects.toThrow('attemptTimeoutMs() of the store');
});

it('a service closes its store within a limit that a timer can have, though its attempts take forever', async () => {
  const closed = new Gate();
  const toy = Object.assign(new ToyBackend(now), { close: () => closed.opened, attemptTimeoutMs: () => 500_000_000 });
  const closing = serviceOn(fromPromises(toy, now)).onApplicationShutdown();
  await delay(100);
  closed.open();
  await closing;
});
