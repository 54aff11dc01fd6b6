import { describe, expect, it } from 'vitest';
import { type Leader, LockLostError } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { redisServer, redisServers } from '../support/stage.js';
import { until } from '../support/until.js';

const TTL_MS = 700;

const elected = (leader: Leader) => until(() => leader.isLeader, { what: 'it is elected' });

/** What `leader.state$` has said since now. */
function statesOf(leader: Leader): string[] {
  const states: string[] = [];
  leader.state$.subscribe((state) => states.push(state.status === 'ending' ? `ending: ${state.reason}` : state.status));
  return states;
}

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
    const late = setTimeout(() => reasons.push('it is late'), TTL_MS + 300); // in its turn behind that of the deadline
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

  it('a leader that another one has replaced after FLUSHALL steps down at its next extension, and its term is smaller [G325]', async () => {
    const server = await redisServer();
    const [a, b] = await Promise.all([openLocks({ redis: server.url }), openLocks({ redis: server.url })]);
    const ttlMs = 2_000; // the other one has to be faster than the next extension
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

it('an election is held on a Redlock, and whoever resigns there lets another one lead [G329]', async () => {
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
