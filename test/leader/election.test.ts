import { inspect } from 'node:util';
import { beforeEach, describe, expect, it } from 'vitest';
import {
  type Leader,
  type Leadership,
  type LeaderState,
  LockKeyError,
  LockLostError,
  LockOptionsError,
  LockSelfDeadlockError,
  type LockService,
  LockUnavailableError,
} from 'nest-redis-lock';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { redisServer, redisServers, serverOfFile } from '../support/stage.js';
import { until } from '../support/until.js';

const server = await serverOfFile();
beforeEach(async () => {
  await server.command('FLUSHALL');
});

const open = (options = {}) => openLocks({ redis: server.url, shutdownTimeoutMs: 10_000, ...options });
const elected = (leader: Leader) => until(() => leader.isLeader, { what: 'it is elected' });

/** The names of the states from now on: `ending` with its reason. */
function statesOf(leader: Leader): string[] {
  const states: string[] = [];
  leader.state$.subscribe((state) => states.push(state.status === 'ending' ? `ending: ${state.reason}` : state.status));
  return states;
}

/** Work that begins in each term and lasts until the test ends it. */
function work(locks: LockService, key: string, options = {}) {
  const terms: Leadership[] = [];
  const gate = new Gate();
  let ended = 0;
  locks.whileLeader(key, options, async (term) => {
    terms.push(term);
    await gate.opened;
    ended++;
  });
  return { terms, gate, ended: () => ended };
}

describe('an election', () => {
  it('there is one election for each registration and key, however often it is requested, and it refuses other options [G316]', async () => {
    const [a, other] = await Promise.all([open(), openLocks({ redis: server.url }, 'other')]);
    const leader = a.leader('outbox', { ttlMs: 15_000 });
    expect(a.leader('outbox')).toBe(leader);
    expect(a.leader('inbox')).not.toBe(leader);
    expect(other.leader('outbox')).not.toBe(leader);
    const refused = () => a.leader('outbox', { ttlMs: 5_000 });
    expect(refused).toThrow(LockOptionsError);
    expect(refused).toThrow('was started with ttlMs 15000: got ttlMs 5000');
    expect(() => a.leader('outbox', { waitMs: 1 } as object)).toThrow('There is no option "waitMs"');
    expect(() => a.leader('outbox', { ttlMs: 1 })).toThrow(LockOptionsError);
    expect(() => a.leader('')).toThrow(LockKeyError);
  });

  it('a leader that resigns queues behind all waiting processes, and each term has a greater token and another owner [G318]', async () => {
    const services = await Promise.all([open(), open(), open()]);
    const owners: string[] = [];
    const terms: number[] = [];
    const order: number[] = [];
    const leaders: Leader[] = [];
    for (const [index, locks] of services.entries()) {
      locks.events$.subscribe((event) => event.type === 'acquired' && owners.push(event.owner));
      const leader = locks.leader('outbox');
      leader.state$.subscribe((state) => {
        if (state.status !== 'leading') return;
        order.push(index);
        terms.push(state.leadership.term);
      });
      if (index === 0) await elected(leader);
      else await untilQueued(server, 'outbox', index);
      leaders.push(leader);
    }
    for (let turn = 0; turn < 5; turn++) {
      const leader = leaders[turn % 3]!;
      await elected(leader);
      await untilQueued(server, 'outbox', 2);
      await leader.resign();
    }
    await elected(leaders[2]!);
    expect(order).toEqual([0, 1, 2, 0, 1, 2]);
    expect(terms).toEqual([...terms].sort((x, y) => x - y));
    expect(new Set(terms).size).toBe(6);
    expect(new Set(owners).size).toBe(6);
  });

  it('an election does not pass its lock on within the process: another process that waited leads before calls of this one have it [G326]', async () => {
    const [a, b] = await Promise.all([open({ cohortMs: 60_000, ttlMs: 15_000 }), open()]);
    const holder = await b.acquire('outbox');
    const first = a.leader('outbox');
    await untilQueued(server, 'outbox', 1);
    const second = b.leader('outbox');
    const call = a.acquire('outbox'); // behind its own election
    await holder.release();
    await elected(first);
    await untilQueued(server, 'outbox', 1);
    await first.resign();
    await elected(second);
    await second.resign();
    const lock = await call;
    expect(lock.isHeld).toBe(true);
    await lock.release();
  });

  it('a leader reports each state once, in order and at once, and a late subscriber gets the last one [G315]', async () => {
    const locks = await open();
    const holder = await locks.acquire('outbox');
    const leader = locks.leader('outbox');
    const states = statesOf(leader);
    const seen: boolean[] = [];
    leader.state$.subscribe(() => seen.push(leader.isLeader));
    expect(states).toEqual(['campaigning']);
    await holder.release();
    await elected(leader);
    expect(states).toEqual(['campaigning', 'leading']);
    expect(statesOf(leader)).toEqual(['leading']);
    const last = new Promise<LeaderState>((resolve) => leader.state$.subscribe({ next: (state) => resolve(state) }));
    expect(await last).toMatchObject({ status: 'leading', leadership: { term: leader.term, isHeld: true } });
    const shown = `{ key: 'outbox', term: ${leader.term}, isHeld: true }`;
    expect(inspect(await last, { breakLength: Infinity })).toBe(`{ status: 'leading', leadership: ${shown} }`);
    expect(inspect(leader)).toBe(`{ key: 'outbox', isLeader: true, term: ${leader.term} }`);
    expect(JSON.parse(JSON.stringify(leader))).toEqual({ key: 'outbox', isLeader: true, term: leader.term });

    await locks.forceRelease('outbox');
    expect(leader.isLeader).toBe(false);
    await elected(leader);
    await leader.resign();
    await locks.onApplicationShutdown();
    const whole = ['campaigning', 'leading', 'ending: forced', 'campaigning', 'leading', 'ending: resigned'];
    expect(states.slice(0, 6)).toEqual(whole);
    expect(states.at(-1)).toBe('closed');
    expect(seen.slice(0, 6)).toEqual([false, true, false, false, true, false]);
    expect(statesOf(leader)).toEqual(['closed']);
  });
});

describe('the work of a leader', () => {
  it('the work of a leader is called in each term with the leadership, and the lock is released only when it has ended [G312]', async () => {
    const [a, b] = await Promise.all([open(), open()]);
    const ofA = work(a, 'outbox');
    const leader = a.leader('outbox');
    await until(() => ofA.terms.length === 1, { what: 'the work runs' });
    const [term] = ofA.terms;
    expect(term).toMatchObject({ key: 'outbox', term: leader.term, isHeld: true });
    const ofB = work(b, 'outbox');
    await untilQueued(server, 'outbox', 1);

    let resigned = false;
    const resigning = leader.resign().then(() => (resigned = true));
    expect(term!.signal.aborted).toBe(true);
    expect(term!.signal.reason).toBeInstanceOf(LockUnavailableError);
    expect(leader.isLeader).toBe(false);
    term!.assertHeld();
    await b.isLocked('outbox'); // a round trip later
    expect([resigned, ofB.terms.length]).toEqual([false, 0]);
    ofA.gate.open();
    await resigning;
    expect(ofA.ended()).toBe(1);
    expect(() => term!.assertHeld()).toThrow(LockLostError);
    await until(() => ofB.terms.length === 1, { what: 'the work of the next leader runs' });
    expect(ofB.terms[0]!.term).toBeGreaterThan(term!.term);
    ofB.gate.open();
  });

  it('work for leaders is skipped when work of a lost term calls it, whether another process leads by then or not [G505]', async () => {
    const [a, b] = await Promise.all([open(), open()]);
    await elected(a.leader('outbox'));
    const next = b.leader('outbox');
    await untilQueued(server, 'outbox', 1);
    const ran: string[] = [];
    const asks = async () => a.ifLeader('outbox', {}, () => void ran.push('nested'));
    const tick = a.ifLeader('outbox', {}, async () => {
      await a.forceRelease('outbox');
      await asks();
      await elected(next);
      await asks();
    });
    await expect(tick).rejects.toBeInstanceOf(LockLostError);
    expect(ran).toEqual([]);
  });
});

describe('a call that would wait for the leader of its own process', () => {
  it('a call that would wait for the leader of its own process fails at once and says why, and a call that tries once finds the lock taken [G317]', async () => {
    const locks = await open();
    await elected(locks.leader('outbox'));
    const refused = await locks.acquire('outbox').catch((error: unknown) => error);
    expect(refused).toBeInstanceOf(LockSelfDeadlockError);
    expect(String(refused)).toContain('this process leads');
    await expect(locks.withLock('outbox', () => {})).rejects.toBeInstanceOf(LockSelfDeadlockError);
    expect(await locks.tryAcquire('outbox')).toBeNull();
  });
});

describe('closing the application', () => {
  it('closing the application aborts the signal of the leader first, waits for its work, and releases the lock to the next one [G319]', async () => {
    const [a, b] = await Promise.all([open(), open()]);
    const ofA = work(a, 'outbox');
    const leader = a.leader('outbox');
    const states = statesOf(leader);
    await until(() => ofA.terms.length === 1, { what: 'the work runs' });
    const next = b.leader('outbox');
    await untilQueued(server, 'outbox', 1);

    const [term] = ofA.terms;
    const closing = a.onApplicationShutdown();
    expect(term!.signal.aborted).toBe(true);
    expect(term!.isHeld).toBe(true);
    expect(leader.isLeader).toBe(false);
    await b.isLocked('outbox');
    expect(next.isLeader).toBe(false);
    ofA.gate.open();
    await closing;
    expect(states).toEqual(['campaigning', 'leading', 'ending: closing', 'closed']);
    await elected(next);
  });
});

const TTL_MS = 700;

describe('a leader whose Redis fails', () => {
  it('a leader steps down at its deadline while Redis hangs, and leads again in a later term when Redis answers [G323]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const leader = locks.leader('outbox', { ttlMs: TTL_MS });
    const states = statesOf(leader);
    const reasons: unknown[] = [];
    locks.whileLeader('outbox', { ttlMs: TTL_MS }, async ({ signal }) => {
      await new Promise((aborted) => signal.addEventListener('abort', aborted));
      reasons.push(signal.reason, leader.isLeader);
    });
    await elected(leader);
    const { term } = leader;
    server.pause();
    const late = setTimeout(() => reasons.push('it is late'), TTL_MS + 300); // in turn, behind the timer of the deadline
    await until(() => reasons.length > 0, { what: 'its signal aborts' });
    clearTimeout(late);
    expect(reasons).toEqual([expect.any(LockLostError), false]);
    server.resume();
    await elected(leader);
    expect(leader.term).toBeGreaterThan(term!);
    // Stalled: this process did not run when the deadline passed.
    expect(states.slice(0, 2)).toEqual(['campaigning', 'leading']);
    expect(states[2]).toMatch(/^ending: (unavailable|stalled)$/);
    expect(states.slice(-2)).toEqual(['campaigning', 'leading']);
  });

  it('a leader leads again in a later term after Redis was killed and came back without data [G324]', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    const leader = locks.leader('outbox', { ttlMs: TTL_MS });
    await elected(leader);
    const { term } = leader;
    await server.kill();
    await until(() => !leader.isLeader, { what: 'it steps down' });
    await server.restart();
    await elected(leader);
    expect(leader.term).toBeGreaterThan(term!);
  });

  it('a leader that was replaced after FLUSHALL steps down at its next extension, and its term is smaller [G325]', async () => {
    const server = await redisServer();
    const [a, b] = await Promise.all([openLocks({ redis: server.url }), openLocks({ redis: server.url })]);
    const ttlMs = 2_000; // the other holder must be faster than the next extension
    const old = a.leader('outbox', { ttlMs });
    await elected(old);
    const { term } = old;
    const states = statesOf(old);
    await server.command('FLUSHALL');
    const next = b.leader('outbox', { ttlMs });
    await elected(next);
    expect(next.term).toBeGreaterThan(term!);
    await until(() => !old.isLeader, { what: 'the old one steps down' });
    await untilQueued(server, 'outbox', 1);
    expect(states).toEqual(['leading', 'ending: stolen', 'campaigning']);
    expect(next.isLeader).toBe(true);
  });
});

it('an election works on a Redlock, where a leader that resigns lets another one lead [G329]', async () => {
  const servers = await redisServers(3);
  const urls = servers.map(({ url }) => url);
  const [a, b] = await Promise.all([openLocks({ redlock: urls }), openLocks({ redlock: urls })]);
  const first = a.leader('outbox', { ttlMs: 2_000 });
  await elected(first);
  const { term } = first;
  const second = b.leader('outbox', { ttlMs: 2_000 });
  const places = () => Promise.all(servers.map((server) => queued(server, 'outbox')));
  await until(async () => (await places()).filter((count) => count > 0).length > 1, { what: 'the other one waits' });
  await first.resign();
  await elected(second);
  expect(first.isLeader).toBe(false);
  expect(second.term).toBeGreaterThan(term!);
});
