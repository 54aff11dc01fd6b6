import { performance as perfHooks } from 'node:perf_hooks';
import { Subject } from 'rxjs';
import { afterEach, beforeEach, describe, expect, it, onTestFinished, vi } from 'vitest';
import type {
  AcquireOutcome,
  AcquireRequest,
  Grant,
  LockBackend,
  Place,
  ReleaseOutcome,
  Releasing,
  WaitListener,
  WaitQueue,
} from 'nest-redis-lock/testing';
import {
  type AcquireOptions,
  LockContendedError,
  type LockService,
  LockUnavailableError,
  type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { Lease, type LeaseOwner } from '../../lib/core/lease/lease.js';
import { Labels } from '../../lib/core/keys/labels.js';
import type { Leases } from '../../lib/core/lease/leases.js';
import { ToldHandOver } from '../../lib/stores/node/grants.js';
import { GRANT_TTL_MS } from '../../lib/stores/node/messages.js';
import { CHECK_MS } from '../../lib/core/waiting/bid.js';
import { Lines } from '../../lib/core/waiting/line.js';
import { ALTERNATING, byArrival } from '../../lib/core/waiting/order.js';
import type { RefusalGate } from '../../lib/core/waiting/refusal-gate.js';
import { Calls, Closing, Waiter, type WaitRequest } from '../../lib/core/waiting/waiter.js';
import { InFlight } from '../../lib/core/time/in-flight.js';
import { validityMs } from '../../lib/core/time/clock.js';
import { ownerSequence } from '../../lib/core/engine/lock-engine.js';
import { openLocks } from '../support/open-locks.js';
import { randomOf } from '../support/random.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { keysOfLocks } from '../support/stored.js';

const KEY = 'key';
const TERMS = { ttlMs: 30_000, waitMs: 60_000, watchdog: true };
const LIMITS = { marginMs: 0, maxWaiters: 100, cohortPasses: 100, cohortMs: 100 };
const OTHERS = { status: 'contended', owner: 'others', remainingMs: 20_000, queued: true, latestToken: 0 } as const;

interface Ask {
  claim: Pick<AcquireRequest, 'owner' | 'ttlMs' | 'asker'>;
  waiting?: Omit<Place, 'turns'> & { tokens: number };
  answer: (outcome: AcquireOutcome) => Promise<void>;
}

/** The lines of a service before a backend that answers as the test says. */
function setUp(limits: Partial<typeof LIMITS> = {}, handsOver = true, order = ALTERNATING) {
  const asks: Ask[] = [];
  const log: string[] = [];
  let listener!: WaitListener;
  let lastToken = 0;
  const listening = { isOn: false };
  const acquireIn = (
    { owner, ttlMs, asker, place, turns = 1 }: AcquireRequest,
    done: (outcome: AcquireOutcome) => void,
  ) => {
    log.push('ask');
    const answer = (outcome: AcquireOutcome) => {
      done(outcome.status === 'acquired' ? { ...outcome, grant: { ...outcome.grant, owner } } : outcome);
      return settled();
    };
    asks.push({ claim: { owner, ttlMs, asker }, waiting: place && { ...place, tokens: turns }, answer });
  };
  const release = ({ owner }: Grant, _how: Releasing, done: (outcome: ReleaseOutcome) => void) => {
    log.push(`release ${owner}`);
    done({ status: 'released' });
  };
  const waitQueue: WaitQueue = {
    handsOver,
    leave: (_key: string, { ticket }: Place) => void log.push(`leave ${ticket}`),
    isListening: () => listening.isOn,
    listen: (_key: string, each: WaitListener) => {
      log.push('listen');
      listener = each;
    },
    checkListening: () => void log.push('check listening'),
  };
  const turn: LockBackend['turn'] = (grant, released, request, done) => {
    release(grant, {}, released);
    acquireIn(request, done);
  };
  const backend = {
    waitQueue,
    turn: handsOver ? turn : undefined,
    attemptTimeoutMs: () => 1_000,
    acquire: acquireIn,
    release,
    problems: () => [],
  } as Partial<LockBackend> as LockBackend;
  const now = () => performance.now();
  const inFlight = new InFlight();
  const leases = {
    add: (grant, token, ttlMs, sentAt, autoExtend, extendTo) => {
      if (extendTo !== undefined) log.push(`begin with ${token}, extend to ${extendTo}`);
      const owner: LeaseOwner = { marginMs: 0, now, whyOver: () => 'expired', foundLost: () => {} };
      const lease = new Lease({ grant, fencingToken: token, ttlMs, sentAt, autoExtend, extendTo }, owner);
      if (extendTo !== undefined) lease.beginExtension(extendTo);
      return lease;
    },
    pass: (lease, token) => lease.passedOn(token),
    check: ({ grant: { owner } }) => log.push(`check ${owner}`),
    lose: (lease, reason) => lease.lose(reason),
    labels: new Labels(),
  } as Partial<Leases> as Leases;
  const queues = new Lines({
    backend,
    now,
    order,
    limits: { ...LIMITS, ...limits },
    leases,
    inFlight,
    warn: (_key, message) => void log.push(message),
    nextOwner: ownerSequence('host/1/random'),
  });
  const closing = new Closing();
  const gate = { settle: (_, settle) => settle() } as Partial<RefusalGate> as RefusalGate;
  const calls = new Calls(now, leases, new Subject(), inFlight, gate);
  const acquire = (terms: Partial<WaitRequest> = {}) => {
    const waiter = new Waiter(KEY, { ...TERMS, ...terms }, closing, calls);
    queues.join(waiter);
    const outcome = { lease: undefined as Lease | undefined, error: undefined as unknown };
    waiter.lock.then(
      ({ lease }) => (outcome.lease = lease),
      (error: unknown) => (outcome.error = error),
    );
    return outcome;
  };
  const granted = (tokens = 1, sentAt = now(), nobodyBefore?: number): AcquireOutcome => {
    const fencingToken = lastToken + 1;
    lastToken += tokens;
    return { status: 'acquired', grant: { key: KEY, owner: '', fencingToken, lastToken, nobodyBefore }, sentAt };
  };
  const releaseLease = (lease: Lease | undefined) => {
    lease!.release();
    queues.giveBack(lease!, () => {});
    return settled();
  };
  return {
    asks,
    log,
    listening,
    queues,
    acquire,
    granted,
    release: releaseLease,
    suspect: (key: string, owner: string) => listener.onTaken(key, owner),
    listens: () => listener.onListening(KEY),
    wake: (ticket?: string, fencingToken?: number, lastToken = fencingToken, boundMs = now()) => {
      if (ticket === undefined || fencingToken === undefined) listener.onTurn(ticket);
      else {
        const told = { fencingToken, lastToken: lastToken!, boundUs: boundMs * 1_000 };
        listener.onTurn(ticket, new ToldHandOver(ticket, told, (_key, us) => us / 1_000));
      }
      return settled();
    },
  };
}

/** Lets everything run that waits for no timer. */
async function settled(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await undefined;
}

/** One waits in the queue, in vain so far. */
async function waitingOne(limits: Partial<typeof LIMITS> = {}, terms: Partial<AcquireOptions> = {}, handsOver = true) {
  const set = setUp(limits, handsOver);
  const call = set.acquire(terms);
  await set.asks[0]!.answer({ ...OTHERS, queued: false });
  set.listening.isOn = true;
  await set.asks[1]!.answer(OTHERS);
  set.log.length = 0;
  return { ...set, call, ticket: set.asks[1]!.waiting!.ticket };
}

describe('the queue of a key', () => {
  beforeEach(() => {
    vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'performance'] });
    const faked = globalThis.performance;
    if (perfHooks !== faked) vi.spyOn(perfHooks, 'now').mockImplementation(() => faked.now());
  });
  afterEach(() => {
    vi.useRealTimers();
    vi.restoreAllMocks();
  });

  it('refuses a call that asks at once when its waitMs is over, though the store still owes the answer, which is of no use then [G520]', async () => {
    const { asks, log, acquire, granted, queues } = setUp();
    const call = acquire({ waitMs: 10_000 });
    await vi.advanceTimersByTimeAsync(9_990);
    expect(call.error).toBeUndefined();
    await vi.advanceTimersByTimeAsync(20);
    expect(call.error).toMatchObject({
      code: 'LOCK_UNAVAILABLE',
      causes: [{ problem: expect.stringMatching(/^no answer for \d+ ms, and waitMs is over$/) }],
    });
    expect(asks[0]!.claim.asker?.isWanted).toBe(false);
    await asks[0]!.answer(granted());
    expect(log).toEqual(['ask', `release ${asks[0]!.claim.owner}`]);
    expect(queues.size).toBe(0);
  });

  it('refuses a call that tries once when the time of an attempt is over, though the store still owes the answer [G521]', async () => {
    const { asks, acquire } = setUp();
    const [first, second] = [acquire({ waitMs: 0 }), acquire({ waitMs: 0 })]; // the second hopes for the same attempt
    await vi.advanceTimersByTimeAsync(990);
    expect([first.error, second.error]).toEqual([undefined, undefined]);
    await vi.advanceTimersByTimeAsync(20);
    const refusal = {
      code: 'LOCK_UNAVAILABLE',
      causes: [{ problem: expect.stringMatching(/^no answer for \d+ ms$/) }],
    };
    expect([first.error, second.error]).toMatchObject([refusal, refusal]);
    expect(asks).toHaveLength(1);
    expect(asks[0]!.claim.asker?.isWanted).toBe(false);
  });

  it('begins with a grant also after it has asked again, and its lease counts from before the last time that was refused [G620]', async () => {
    const { asks, log, call, ticket, wake } = await waitingOne();
    for (const index of [2, 3, 4]) {
      await vi.advanceTimersByTimeAsync(1_000);
      await asks[index]!.answer(OTHERS);
    }
    await wake(ticket);
    await vi.advanceTimersByTimeAsync(100); // the store takes its time
    await asks[5]!.answer(OTHERS);
    await vi.advanceTimersByTimeAsync(300);
    await wake(ticket, 7);
    expect(log.at(-1)).toBe('begin with 7, extend to 30000');
    expect(call.lease!.checkRemainingMs()).toBeLessThanOrEqual(validityMs(GRANT_TTL_MS, 0) - 400);
    expect(call.lease!.checkRemainingMs()).toBeGreaterThan(validityMs(GRANT_TTL_MS, 0) - 420);
  });

  it.each<[string, Partial<Extract<AcquireOutcome, { status: 'contended' }>>]>([
    ['its place was lost before: it may have been granted the lock', { placeWasLost: true }],
    ['another connection has answered since, perhaps that of another server', { connection: {} }],
  ])('confirms a grant first when %s [G621]', async (_when, answer) => {
    const { asks, log, ticket, wake } = await waitingOne();
    await wake(ticket);
    await asks[2]!.answer({ ...OTHERS, ...answer });
    await wake(ticket);
    await asks[3]!.answer({ ...OTHERS, ...answer, placeWasLost: false });
    log.length = 0;
    await wake(ticket, 7);
    expect(log).toEqual(['ask']);
  });

  it('confirms a grant first that tells of more tokens than its place is for [G622]', async () => {
    const { log, ticket, wake } = await waitingOne();
    await wake(ticket, 7, 9);
    expect(log).toEqual(['ask']);
  });

  it('in fair mode asks on behalf of its first call alone, under the time when that came [G623]', async () => {
    const { asks, acquire, listening } = setUp({}, true, byArrival(1));
    listening.isOn = true;
    const controller = new AbortController();
    await vi.advanceTimersByTimeAsync(5);
    const from = performance.now();
    acquire({ signal: controller.signal });
    await vi.advanceTimersByTimeAsync(10);
    acquire();
    await asks[0]!.answer(OTHERS);
    expect(asks).toHaveLength(1);
    controller.abort('gone');
    await vi.advanceTimersByTimeAsync(CHECK_MS);
    const arrivedAt = asks.map(({ waiting }) => waiting!.arrivedAt);
    expect(arrivedAt).toEqual([from, from + 10]);
  });

  it.each([
    ['1 ms', 1, [1, 2, 3]],
    ['none', 0, [1, 2]],
  ])(
    'in fair mode passes the lock on to those who came before all that wait elsewhere, and later by the slack (%s) [G624]',
    async (_slack, slackMs, served) => {
      const { asks, log, acquire, granted, release } = setUp({}, true, byArrival(slackMs));
      const from = performance.now();
      const calls = [acquire()];
      for (const afterMs of [10, 1, 10]) {
        await vi.advanceTimersByTimeAsync(afterMs);
        calls.push(acquire());
      }
      await asks[0]!.answer(granted(4, performance.now(), from + 10));
      log.length = 0;
      for (const call of calls) if (call.lease) await release(call.lease);
      expect(calls.flatMap(({ lease }) => lease?.fencingToken ?? [])).toEqual(served);
      expect(log).toEqual([`release ${asks[0]!.claim.owner}`, 'ask']);
    },
  );

  it('in fair mode passes the lock on within the slack for cohortMs only, and for as long as it takes to those who came before [G625]', async () => {
    for (const [boundMs, served] of [
      [0, 1],
      [1, 2],
    ] as const) {
      const { asks, acquire, granted, release } = setUp({ cohortMs: 100 }, true, byArrival(1));
      const from = performance.now();
      const first = acquire();
      await vi.advanceTimersByTimeAsync(1);
      const second = acquire();
      await asks[0]!.answer(granted(4, performance.now(), from + boundMs));
      await vi.advanceTimersByTimeAsync(101);
      await release(first.lease);
      expect([first, second].filter(({ lease }) => lease)).toHaveLength(served);
    }
  });
});

/** Nobody could be served in time: either others had the lock, or Redis was just being asked for it. */
function isOver(error: unknown): boolean {
  return (
    error instanceof LockContendedError ||
    (error instanceof LockUnavailableError && /waitMs is over/.test(error.message))
  );
}

const BACKENDS: [string, (server: RedisServer) => RedisLockModuleOptions][] = [
  ['Redis', ({ url }) => ({ redis: url })],
  ['Redis, few passes', ({ url }) => ({ redis: url, cohortPasses: 3 })],
  ['Redis, fair', ({ url }) => ({ redis: url, fair: true })],
  ['memory', () => ({ memory: true })],
];

describe.each(BACKENDS)('random calls on %s', (name, optionsOf) => {
  it.each([1, 2, 3])('no turn is ever lost nor given twice, whatever happens (seed %i) [G129]', async (seed) => {
    const server = await RedisServer.start();
    onTestFinished(() => server.stop());
    const random = randomOf(seed);
    const options = optionsOf(server);
    const services: LockService[] = [];
    for (let index = 0; index < (options.memory ? 1 : 3); index++) services.push(await openLocks(options));
    const tokens: number[] = [];
    const outcomes: Record<string, number> = { served: 0, aborted: 0, inVain: 0 };
    let [inside, most] = [0, 0];
    const reason = new Error('aborted');
    const one = async () => {
      const locks = services[Math.floor(random() * services.length)]!;
      const controller = new AbortController();
      const fate = random();
      const request: AcquireOptions = {
        ttlMs: [10_000, 20_000, 30_000][Math.floor(random() * 3)]!,
        waitMs: fate < 0.15 ? 0 : fate < 0.35 ? Math.ceil(random() * 40) : 60_000,
        watchdog: random() < 0.8,
        ...(fate > 0.75 && { signal: controller.signal }),
      };
      // Mostly soon: few calls wait for longer than a few milliseconds.
      if (fate > 0.75) setTimeout(() => controller.abort(reason), random() ** 3 * 60);
      try {
        const lock = await locks.acquire('chaos', request);
        most = Math.max(most, ++inside);
        tokens.push(lock.fencingToken);
        if (random() < 0.3) await new Promise((resolve) => setTimeout(resolve, random() * 2));
        inside--;
        expect(await lock.release()).toBe(true);
        outcomes.served!++;
      } catch (error) {
        const kind = error === reason ? 'aborted' : isOver(error) ? 'inVain' : String(error);
        outcomes[kind] = (outcomes[kind] ?? 0) + 1;
      }
    };
    const calls: Promise<void>[] = [];
    for (let index = 0; index < 400; index++) {
      calls.push(one());
      if (random() < 0.2) await new Promise((resolve) => setTimeout(resolve, random() * 6));
    }
    await Promise.all(calls);
    expect(most).toBe(1);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
    expect(Object.keys(outcomes)).toEqual(['served', 'aborted', 'inVain']);
    expect(outcomes.served! + outcomes.aborted! + outcomes.inVain!).toBe(400);
    expect(Math.min(...Object.values(outcomes))).toBeGreaterThan(0);
    await until(() => services.every(({ size }) => size === 0), { what: 'nothing is kept' });
    await until(async () => (await keysOfLocks(server)).length === 0, {
      what: `only the fencing counter is left (${name})`,
    });
  });
});
