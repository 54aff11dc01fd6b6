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
  NodeError,
  type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { Lease, type LeaseOwner } from '../../lib/core/lease/lease.js';
import { Labels } from '../../lib/core/keys/labels.js';
import type { Leases } from '../../lib/core/lease/leases.js';
import { ToldHandOver } from '../../lib/stores/node/grants.js';
import { GRANT_TTL_MS } from '../../lib/stores/node/messages.js';
import { CHECK_MS } from '../../lib/core/waiting/bid.js';
import { ContestedKeys } from '../../lib/core/waiting/contested-keys.js';
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
const DOWN = { status: 'unavailable', causes: [new NodeError('node', 'down')] } satisfies AcquireOutcome;

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

/** A call has asked that the store keep the lock until then, and has its lock now, or has given up: the store may have it stand so long. */
function keptUntil(lease: Lease, until: number, isKept = false): void {
  lease.askUntil(until);
  lease.beginExtension(lease.ttlMs);
  lease.answerCame();
  lease.extended(lease.sentAt);
  lease.askNoMore(until, isKept);
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

  it('refuses a call with what its backend throws', async () => {
    const { acquire, asks } = setUp();
    asks.push = () => {
      throw new Error('a bug');
    };
    const call = acquire();
    await settled();
    expect(call.error).toEqual(new Error('a bug'));
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

  it('gives a call that is answered in time no timer, and looks at all that ask with one', async () => {
    const { asks, acquire, granted, release } = setUp();
    const call = acquire();
    const timers = vi.getTimerCount();
    await asks[0]!.answer(granted());
    await release(call.lease);
    for (let turn = 1; turn < 5; turn++) {
      const next = acquire();
      expect(vi.getTimerCount()).toBe(timers);
      await asks[turn]!.answer(granted());
      await release(next.lease);
    }
    await vi.advanceTimersByTimeAsync(1_100);
    expect(vi.getTimerCount()).toBe(0);
  });

  it('asks without a place in the queue as long as the lock may be free, and with one after that', async () => {
    const { asks, log, acquire, granted } = setUp();
    const call = acquire();
    expect(asks[0]!.waiting).toBeUndefined();
    await asks[0]!.answer({ ...OTHERS, queued: false });
    expect(log).toEqual(['ask', 'listen', 'ask']);
    expect(asks[1]).toMatchObject({ waiting: { tokens: 1 }, claim: { owner: asks[1]!.waiting!.ticket } });
    await asks[1]!.answer(granted());
    expect(call.lease?.fencingToken).toBe(1);
  });

  it('takes its place at once when it was refused and the process listens: it would be woken by nobody', async () => {
    const { asks, log, acquire, listening } = setUp();
    listening.isOn = true;
    acquire();
    await asks[0]!.answer({ ...OTHERS, queued: false });
    expect(log).toEqual(['ask', 'ask']);
    expect(asks[1]!.waiting).toMatchObject({ tokens: 1 });
  });

  it('takes its place with its first attempt for a key that it waited for a moment ago, unless it tries once', async () => {
    const { asks, call, acquire, granted, release, ticket, wake } = await waitingOne();
    await vi.advanceTimersByTimeAsync(900);
    await wake(ticket);
    await asks[2]!.answer(granted());
    await release(call.lease);
    const [tries, waits] = [acquire({ waitMs: 0 }), acquire()];
    await asks[3]!.answer(granted());
    expect(asks[3]!.waiting).toBeUndefined();
    await release(tries.lease);
    expect(asks[4]!.waiting).toMatchObject({ tokens: 1 });
    await asks[4]!.answer(granted());
    await release(waits.lease);
    await vi.advanceTimersByTimeAsync(2_000);
    acquire();
    expect(asks[5]!.waiting).toBeUndefined();
  });

  it('remembers at most a thousand keys that it had to wait for', () => {
    const keys = new ContestedKeys(() => performance.now());
    for (let index = 0; index <= 1_000; index++) keys.note(`key ${index}`);
    const remembered = Array.from({ length: 1_001 }, (_, index) => keys.has(`key ${index}`));
    expect([remembered[499], remembered[500], remembered[1_000]]).toEqual([false, true, true]);
  });

  it('asks with the same ticket each time', async () => {
    const { asks, ticket, wake } = await waitingOne();
    for (const index of [2, 3, 4]) {
      await wake(ticket);
      expect(asks[index]!.claim.owner).toBe(ticket);
      expect(asks[index]!.waiting!.ticket).toBe(ticket);
      await asks[index]!.answer(OTHERS);
    }
  });

  it('under Redlock keeps the ticket, too, but has an owner value of its own for each attempt', async () => {
    const { asks, ticket, wake } = await waitingOne({}, {}, false);
    await wake(ticket);
    expect(asks[2]!.waiting!.ticket).toBe(ticket);
    expect(new Set(asks.map(({ claim }) => claim.owner)).add(ticket).size).toBe(4);
  });

  it('looks for itself after a second, or when the lease of the holder ends', async () => {
    const { asks } = await waitingOne();
    await vi.advanceTimersByTimeAsync(899);
    expect(asks).toHaveLength(2);
    await vi.advanceTimersByTimeAsync(101); // with what else is checked by then
    expect(asks).toHaveLength(3);
    await asks[2]!.answer({ ...OTHERS, remainingMs: 300 });
    await vi.advanceTimersByTimeAsync(300);
    expect(asks).toHaveLength(3);
    await vi.advanceTimersByTimeAsync(1);
    expect(asks).toHaveLength(4);
    await asks[3]!.answer({ ...OTHERS, remainingMs: Infinity });
    await vi.advanceTimersByTimeAsync(1_000);
    expect(asks).toHaveLength(5);
  });

  it('asks more and more seldom as long as it has no place in the queue', async () => {
    const { asks, log, acquire } = setUp();
    acquire();
    for (let index = 0; index < 40; index++) {
      await asks[index]!.answer({ ...OTHERS, queued: false });
      await vi.advanceTimersByTimeAsync(376);
      expect(asks).toHaveLength(index + 2);
    }
    expect(log.filter((entry) => entry === 'listen')).toHaveLength(40); // until it is listened to
    await asks[40]!.answer({ ...OTHERS, queued: false });
    await vi.advanceTimersByTimeAsync(120);
    expect(asks).toHaveLength(41); // the first pauses were shorter than this
  });

  it('asks at once when its ticket is woken, and not for the tickets of others', async () => {
    const { asks, ticket, wake, call, granted } = await waitingOne();
    await wake('host/1/random/other');
    expect(asks).toHaveLength(2);
    await wake(ticket);
    expect(asks).toHaveLength(3);
    await asks[2]!.answer(granted());
    expect(call.lease?.checkState()).toBe('held');
    await wake(ticket); // too late
    await vi.advanceTimersByTimeAsync(2_000);
    expect(asks).toHaveLength(3);
  });

  it('asks at once when all are woken, because messages may have been lost', async () => {
    const { asks, wake } = await waitingOne();
    await wake();
    expect(asks).toHaveLength(3);
  });

  it('asks once more when it was woken while it asked', async () => {
    const { asks, ticket, wake } = await waitingOne();
    await wake(ticket);
    await wake(ticket); // the answer under way may be older than this
    expect(asks).toHaveLength(3);
    await asks[2]!.answer(OTHERS);
    expect(asks).toHaveLength(4);
    await asks[3]!.answer(OTHERS);
    expect(asks).toHaveLength(4);
  });

  it('lets chance decide after a split vote, whoever is woken', async () => {
    const { asks, ticket, wake } = await waitingOne({}, {}, false);
    await wake(ticket);
    await asks[2]!.answer({ status: 'contended', queued: true });
    await wake(ticket);
    await wake();
    expect(asks).toHaveLength(3);
    await vi.advanceTimersByTimeAsync(10);
    expect(asks).toHaveLength(4);
    await asks[3]!.answer(OTHERS);
    await wake(ticket);
    expect(asks).toHaveLength(5); // it listens again
  });

  it('gives back its place when nobody waits any more', async () => {
    const controller = new AbortController();
    const { log, queues, call, ticket } = await waitingOne({}, { signal: controller.signal });
    controller.abort('gone');
    await settled();
    expect(call.error).toBe('gone');
    expect(log).toEqual([`leave ${ticket}`]);
    expect(queues.size).toBe(0);
    await vi.advanceTimersByTimeAsync(5_000);
    expect(log).toEqual([`leave ${ticket}`]);
  });

  it('keeps its place for the next one when the first gives up', async () => {
    const controller = new AbortController();
    const { log, asks, acquire, granted, wake, ticket } = await waitingOne({}, { signal: controller.signal });
    const next = acquire();
    controller.abort('gone');
    await wake(ticket);
    await asks[2]!.answer(granted());
    expect(next.lease?.grant.owner).toBe(ticket);
    expect(log).toEqual(['ask']);
  });

  it('gives back a place that it got after everybody had given up', async () => {
    const controller = new AbortController();
    const { asks, log, queues, acquire } = setUp();
    acquire({ signal: controller.signal });
    await asks[0]!.answer({ ...OTHERS, queued: false });
    await vi.advanceTimersByTimeAsync(20);
    controller.abort('gone');
    await asks[1]!.answer(OTHERS);
    expect(log.at(-1)).toBe(`leave ${asks[1]!.waiting!.ticket}`);
    expect(queues.size).toBe(0);
  });

  it('gives back a lock that it got after everybody had given up', async () => {
    const controller = new AbortController();
    const { asks, log, queues, ticket, wake, granted } = await waitingOne({}, { signal: controller.signal });
    await wake(ticket);
    controller.abort('gone');
    await asks[2]!.answer(granted());
    expect(log).toEqual(['ask', `release ${ticket}`]);
    expect(queues.size).toBe(0);
  });

  it('grants a call that came meanwhile what was asked for on behalf of one that has given up', async () => {
    const controller = new AbortController();
    const { asks, log, acquire, granted } = setUp();
    acquire({ signal: controller.signal });
    controller.abort('gone');
    const next = acquire();
    await asks[0]!.answer(granted());
    expect(next.lease?.grant.owner).toBe(asks[0]!.claim.owner);
    expect(log).toEqual(['ask']);
  });

  it('gives back a lock that the first one wanted for another time than the next', async () => {
    const controller = new AbortController();
    const { asks, log, acquire, granted } = setUp();
    acquire({ signal: controller.signal });
    const next = acquire({ ttlMs: 5_000 });
    controller.abort('gone');
    await asks[0]!.answer(granted());
    expect(log).toEqual(['ask', `release ${asks[0]!.claim.owner}`, 'ask']);
    expect(asks[1]!.claim.ttlMs).toBe(5_000);
    await asks[1]!.answer(granted());
    expect(next.lease?.ttlMs).toBe(5_000);
  });

  it('gives back a lock whose answer took longer than its lease, and asks again', async () => {
    const { asks, log, acquire, granted } = setUp();
    const call = acquire({ ttlMs: 1_000 });
    const outcome = granted();
    await vi.advanceTimersByTimeAsync(1_000);
    await asks[0]!.answer(outcome);
    expect(call.lease).toBeUndefined();
    expect(log).toEqual(['ask', `release ${asks[0]!.claim.owner}`, 'ask']);
  });

  it('gives the lock back before it asks for it again', async () => {
    const { asks, log, acquire, granted, release } = setUp({ cohortPasses: 0 });
    const [first] = [acquire(), acquire(), acquire()];
    await asks[0]!.answer(granted());
    log.length = 0;
    await release(first!.lease);
    expect(log).toEqual([`release ${asks[0]!.claim.owner}`, 'ask']);
    expect(asks[1]!.waiting).toMatchObject({ tokens: 1 }); // others may have it meanwhile
  });

  it('asks for as many tokens as calls wait, up to cohortPasses more than one', async () => {
    for (const [waiters, tokens] of [
      [2, 2],
      [4, 4],
      [9, 4],
    ] as const) {
      const { asks, acquire, granted, release } = setUp({ cohortPasses: 3 });
      const first = acquire();
      for (let index = 0; index < waiters; index++) acquire();
      await asks[0]!.answer(granted());
      await release(first.lease);
      expect(asks[1]!.waiting!.tokens).toBe(tokens);
    }
  });

  it('passes the lock on as often as it has tokens, each larger than the one before', async () => {
    const { asks, log, acquire, granted, release } = setUp();
    const [first, ...calls] = Array.from({ length: 5 }, () => acquire());
    await asks[0]!.answer(granted());
    await release(first!.lease);
    await asks[1]!.answer(granted(2));
    log.length = 0;
    await release(calls[0]!.lease);
    expect(calls[1]!.lease).toMatchObject({ fencingToken: 3, grant: { owner: asks[1]!.claim.owner } });
    expect(log).toEqual([]);
    await release(calls[1]!.lease);
    expect(calls[2]!.lease).toBeUndefined();
    expect(log).toEqual([`release ${asks[1]!.claim.owner}`, 'ask']);
  });

  it.each([
    [99, []],
    [100, ['release', 'ask']],
  ])('passes the lock on for cohortMs after the grant (%i ms)', async (afterMs, expected) => {
    const { asks, log, acquire, granted, release } = setUp({ cohortMs: 100 });
    const [first, second] = [acquire(), acquire(), acquire()];
    await asks[0]!.answer(granted());
    await release(first!.lease);
    await asks[1]!.answer(granted(2));
    log.length = 0;
    await vi.advanceTimersByTimeAsync(afterMs);
    await release(second!.lease);
    expect(log.map((entry) => entry.split(' ')[0])).toEqual(expected);
  });

  it('passes no lease on that was lost', async () => {
    const { asks, log, acquire, granted, release, queues } = setUp();
    const [first, second] = [acquire(), acquire(), acquire()];
    await asks[0]!.answer(granted());
    await release(first!.lease);
    await asks[1]!.answer(granted(2));
    log.length = 0;
    second!.lease!.lose('expired');
    queues.onLost(second!.lease!);
    expect(log).toEqual(['ask']);
  });

  it('does not name a lease as the holder that was lost a moment ago, nor takes the lock for free', async () => {
    const { acquire, asks, granted } = setUp();
    const first = acquire();
    await asks[0]!.answer(granted());
    const waiting = acquire({ waitMs: 50 });
    first.lease!.lose('expired'); // the queue does not know it yet
    const trier = acquire({ waitMs: 0 });
    await vi.advanceTimersByTimeAsync(50);
    for (const { error } of [trier, waiting]) {
      expect(error).toBeInstanceOf(LockContendedError);
      expect((error as LockContendedError).holder).toBeUndefined();
    }
  });

  it('passes a lease on no more that may have been taken by force, and has it checked', async () => {
    const { asks, log, acquire, granted, release, suspect, ticket, wake, call } = await waitingOne();
    const next = acquire();
    await wake(ticket);
    await asks[2]!.answer(granted(2));
    const { owner } = call.lease!.grant;
    log.length = 0;
    suspect(KEY, 'another/1');
    suspect('another key', owner);
    expect(log).toEqual([]);
    suspect(KEY, owner);
    expect(log).toEqual([`check ${owner}`]);
    await release(call.lease);
    expect(next.lease).toBeUndefined();
    expect(log).toEqual([`check ${owner}`, `release ${owner}`, 'ask']);
  });

  it.each<[string, (lease: Lease) => void, Partial<WaitRequest>, Partial<WaitRequest>]>([
    ['that is to be kept', (lease) => lease.askUntil(performance.now() + 60_000), {}, {}],
    ['that is kept', (lease) => keptUntil(lease, performance.now() + 60_000, true), {}, {}],
    [
      'that may stand for longer, as it was to be kept',
      (lease) => keptUntil(lease, performance.now() + 60_000),
      {},
      {},
    ],
    ['whose ttl in the store is not known', (lease) => lease.beginExtension(20_000), {}, { ttlMs: 20_000 }],
    ['of a call that allows no cohort', () => {}, { cohort: false }, {}],
    ['to a call that allows no cohort', () => {}, {}, { cohort: false }],
    ['to a call without a watchdog', () => {}, {}, { watchdog: false }],
    ['to a call with another ttl', () => {}, {}, { ttlMs: 20_000 }],
    ['of which a third is over', (lease) => void vi.advanceTimersByTime(lease.ttlMs / 3), {}, {}],
  ])('passes no lease on %s: it is given back, and asked for again', async (_what, prepare, ofFirst, ofNext) => {
    const { asks, log, acquire, granted, release } = setUp();
    const first = acquire(ofFirst);
    await asks[0]!.answer(granted(2));
    const next = acquire(ofNext);
    prepare(first.lease!);
    await release(first.lease);
    expect(next.lease).toBeUndefined();
    expect(log).toEqual(['ask', `release ${asks[0]!.claim.owner}`, 'ask']);
  });

  it('has it checked whether it listens when the lock was granted to it, and nobody had woken it', async () => {
    const woken = await waitingOne();
    await woken.wake(woken.ticket);
    await woken.asks[2]!.answer(woken.granted());
    expect(woken.log).toEqual(['ask']);
    const unheard = await waitingOne();
    await vi.advanceTimersByTimeAsync(1_000);
    await unheard.asks[2]!.answer(unheard.granted());
    expect(unheard.log).toEqual(['ask', 'check listening']);
  });

  it('that does not listen any more asks again soon with its place, so that the store knows', async () => {
    const { asks, log, listening, ticket } = await waitingOne();
    await vi.advanceTimersByTimeAsync(1_000);
    await asks[2]!.answer(OTHERS);
    listening.isOn = false;
    log.length = 0;
    await vi.advanceTimersByTimeAsync(1_000);
    await asks[3]!.answer(OTHERS);
    await vi.advanceTimersByTimeAsync(20);
    for (const at of [3, 4]) {
      const { arrivedAt } = asks[1]!.waiting!;
      expect(asks[at]!.waiting).toMatchObject({ ticket, arrivedAt, isTaken: true });
    }
    expect(log).toEqual(['ask', 'listen', 'ask']);
  });

  it('refuses who waited for all of an attempt that failed, and asks again for those who came later', async () => {
    const { asks, acquire } = setUp();
    const before = [acquire(), acquire()];
    await vi.advanceTimersByTimeAsync(5);
    const after = acquire();
    await asks[0]!.answer(DOWN);
    expect(before.map(({ error }) => error)).toEqual([
      expect.objectContaining({ code: 'LOCK_UNAVAILABLE' }),
      expect.objectContaining({ code: 'LOCK_UNAVAILABLE' }),
    ]);
    expect([after.error, asks.length]).toEqual([undefined, 2]);
  });

  it('leaves its place when the backend fails', async () => {
    const { asks, log, ticket, wake, call } = await waitingOne();
    await wake(ticket);
    await asks[2]!.answer(DOWN);
    expect(call.error).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(log).toEqual(['ask', `leave ${ticket}`]);
  });

  it('refuses who tries once without asking when others are known to hold the lock or to wait', async () => {
    const { asks, acquire } = await waitingOne();
    const trier = acquire({ waitMs: 0 });
    await settled();
    expect(trier.error).toMatchObject({ code: 'LOCK_CONTENDED', holder: { owner: 'others' } });
    expect(asks).toHaveLength(2);
  });

  it('refuses all who tried once when the first of them was refused', async () => {
    const { asks, queues, acquire } = setUp();
    const calls = [acquire({ waitMs: 0 }), acquire({ waitMs: 0 })];
    await asks[0]!.answer({ ...OTHERS, queued: false });
    expect(calls.map(({ error }) => error)).toEqual(
      calls.map(() => expect.objectContaining({ code: 'LOCK_CONTENDED' })),
    );
    expect(queues.size).toBe(0);
    expect(asks).toHaveLength(1);
  });

  it('who waited behind calls of its own process is told so, also when Redis is just being asked', async () => {
    const { asks, acquire, granted, release } = setUp({ cohortPasses: 0 });
    const first = acquire();
    await asks[0]!.answer(granted());
    const waiting = acquire({ waitMs: 5_000 });
    await vi.advanceTimersByTimeAsync(4_990);
    await release(first.lease);
    expect(asks).toHaveLength(2);
    await vi.advanceTimersByTimeAsync(10); // Redis has had 10 ms to answer
    expect(waiting.error).toMatchObject({ code: 'LOCK_CONTENDED' });
  });

  it('begins with a grant without asking, and its lease counts from before it first asked', async () => {
    const { asks, log, call, ticket, wake, release } = await waitingOne();
    await vi.advanceTimersByTimeAsync(500);
    await wake(ticket, 7);
    expect(log).toEqual(['begin with 7, extend to 30000']);
    expect(call.lease).toMatchObject({ fencingToken: 7, provisionalTtlMs: GRANT_TTL_MS, grant: { owner: ticket } });
    expect(call.lease!.checkRemainingMs()).toBeLessThanOrEqual(validityMs(GRANT_TTL_MS, 0) - 500);
    expect(call.lease!.checkRemainingMs()).toBeGreaterThan(validityMs(GRANT_TTL_MS, 0) - 520);
    await wake(ticket, 8); // said twice, it is for nobody
    await release(call.lease);
    expect(log.slice(1)).toEqual([`release ${ticket}`]);
    expect(asks).toHaveLength(2);
  });

  it.each<[string, Partial<typeof LIMITS>, Partial<AcquireOptions>]>([
    ['marginMs leaves next to nothing of the grant', { marginMs: 1_500 }, {}],
    ['its lease is not extended', {}, { watchdog: false }],
    ['the ttl it asks for is shorter than what has to be left', {}, { ttlMs: 900 }],
  ])('confirms a grant first when %s', async (_when, limits, terms) => {
    const { asks, call, ticket, wake, granted } = await waitingOne(limits, terms);
    await wake(ticket, 7);
    expect(asks).toHaveLength(3);
    expect(asks[2]!.claim.owner).toBe(ticket);
    await asks[2]!.answer(granted());
    expect(call.lease?.ttlMs).toBe(terms.ttlMs ?? 30_000);
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

  it('begins with a block of tokens, and passes the lock on while its lease is being extended', async () => {
    const { asks, log, acquire, listening, release, wake } = setUp();
    const calls = [acquire(), acquire(), acquire(), acquire()];
    await asks[0]!.answer({ ...OTHERS, queued: false });
    listening.isOn = true;
    await vi.advanceTimersByTimeAsync(20);
    await asks[1]!.answer(OTHERS);
    const { ticket } = asks[1]!.waiting!;
    expect(asks[1]!.waiting!.tokens).toBe(5); // for a quarter more than wait
    log.length = 0;
    await wake(ticket, 7, 9);
    await release(calls[0]!.lease);
    await release(calls[1]!.lease);
    expect(calls.map(({ lease }) => lease?.fencingToken)).toEqual([7, 8, 9, undefined]);
    expect(calls[2]!.lease!.checkState()).toBe('extending');
    await release(calls[2]!.lease);
    expect(log).toEqual(['begin with 7, extend to 30000', `release ${ticket}`, 'ask']);
  });

  it('confirms a grant first that tells of more tokens than its place is for [G622]', async () => {
    const { log, ticket, wake } = await waitingOne();
    await wake(ticket, 7, 9);
    expect(log).toEqual(['ask']);
  });

  it('confirms a grant first when its attempt was sent twice', async () => {
    const { asks, log, acquire, listening, wake } = setUp();
    acquire();
    await asks[0]!.answer({ ...OTHERS, queued: false });
    listening.isOn = true;
    await vi.advanceTimersByTimeAsync(20);
    await asks[1]!.answer({ ...OTHERS, isRepeated: true });
    log.length = 0;
    await wake(asks[1]!.waiting!.ticket, 7);
    expect(log).toEqual(['ask']);
  });

  it('asks once more when it was granted the lock while it asked', async () => {
    const { asks, log, ticket, wake } = await waitingOne();
    await vi.advanceTimersByTimeAsync(1_000);
    await wake(ticket, 7);
    expect(log).toEqual(['ask']);
    await asks[2]!.answer(OTHERS);
    expect(log).toEqual(['ask', 'ask']);
  });

  it('asks again at once when messages about its key arrive from then on, as its turn may have come before', async () => {
    const { asks, acquire, listens } = setUp({}, true, byArrival(1));
    acquire();
    await asks[0]!.answer(OTHERS);
    listens();
    listens(); // the answer may be older than that
    await asks[1]!.answer(OTHERS);
    expect(asks.map(({ claim }) => claim.owner)).toEqual(Array(3).fill(asks[0]!.claim.owner));
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

  it('in fair mode gives a lock back that its first call has waited for, and asks under the time of the next, before whom others come', async () => {
    const { asks, log, acquire, granted } = setUp({}, true, byArrival(1));
    const controller = new AbortController();
    const from = performance.now();
    acquire({ signal: controller.signal });
    await vi.advanceTimersByTimeAsync(50);
    const next = acquire();
    controller.abort('gone');
    await asks[0]!.answer(granted(1, performance.now(), from + 20));
    expect(next.lease).toBeUndefined();
    expect(log).toEqual(['ask', `release ${asks[0]!.claim.owner}`, 'ask']);
    expect(asks[1]!.waiting!.arrivedAt).toBe(from + 50);
    await asks[1]!.answer(granted(1, performance.now(), from + 20)); // it was asked for under this time: nobody came earlier
    expect(next.lease?.checkState()).toBe('held');
  });

  it('in fair mode gives a lock back that was handed over to the place of a call that has given up, before whose successor others come', async () => {
    const { asks, log, acquire, wake } = setUp({}, true, byArrival(1));
    const controller = new AbortController();
    const from = performance.now();
    const calls = [acquire({ signal: controller.signal })];
    await vi.advanceTimersByTimeAsync(50);
    calls.push(acquire());
    await asks[0]!.answer(OTHERS);
    controller.abort('gone');
    const { ticket } = asks[0]!.waiting!;
    await wake(ticket, 7, 7, from + 20);
    expect(log).toEqual(['ask', 'listen', `release ${ticket}`, 'ask']);
    expect(calls[1]!.lease).toBeUndefined();
    expect(asks[1]!.waiting).toMatchObject({ arrivedAt: from + 50, isTaken: false });
    expect(asks[1]!.waiting!.ticket).not.toBe(ticket);
    expect(asks[1]!.claim.asker?.isWanted).toBe(true);
  });

  it('looks no more for a key when all calls have given up', async () => {
    const controller = new AbortController();
    const { asks, acquire, queues } = setUp({}, true, byArrival(1));
    for (let call = 0; call < 3; call++) acquire({ signal: controller.signal });
    await asks[0]!.answer(OTHERS);
    controller.abort('gone');
    await vi.advanceTimersByTimeAsync(5 * CHECK_MS);
    expect([asks.length, queues.size, vi.getTimerCount()]).toEqual([1, 0, 0]);
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
