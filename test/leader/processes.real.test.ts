import { afterAll, beforeAll, expect, it } from 'vitest';
import { FencedStore } from '../hazards/fenced-store.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { LeaderJournal, LeaderProcess, type Entry } from './leader-process.js';

/** Long enough that no leader loses its lock because the machine is busy. */
const TTL_MS = 4_000;
/** How often each leader checks whether it holds the lock, at least. */
const LOOKS = 20;
const journal = new LeaderJournal();
let server: RedisServer;
let processes: LeaderProcess[] = [];
/** The leaders after the first: either process may ask first when the lease of a dead leader has ended. */
let successor: string;
let other: string;

/** Waits for the leader, and until it has checked several times whether it holds the lock. */
const begun = async (count: number) => {
  const what = `there is a leader for the ${count}. time, which has looked`;
  await until(() => journal.entries('began').length === count && hasLooked(lastTerm()), { what });
};
const hasLooked = (term: number) => journal.entries('held').filter((entry) => entry.term === term).length >= LOOKS;

/**
 * Of three processes, the leader is killed, the next one is stopped for longer than its lease, the third resigns, and
 * one closes.
 */
beforeAll(async () => {
  server = await RedisServer.start();
  const start = (name: string) => LeaderProcess.start(name, journal, { redis: server.url, shutdownTimeoutMs: 60_000 });
  processes = await Promise.all(['a', 'b', 'c'].map(start));
  const named = (name: string) => processes['abc'.indexOf(name)]!;
  for (const [index, each] of processes.entries()) {
    await each.campaign('outbox', { ttlMs: TTL_MS });
    if (index === 0) await begun(1);
    else await untilQueued(server, 'outbox', index);
  }
  await named('a').kill();
  await begun(2);
  successor = journal.entries('began')[1]!.process;
  other = successor === 'b' ? 'c' : 'b';
  named(successor).pause();
  await begun(3);
  named(successor).resume();
  await until(() => journal.entries('late').length === 1, { what: 'the stopped leader writes too late' });
  await untilQueued(server, 'outbox', 1);
  await named(other).resign('outbox');
  await begun(4);
  await untilQueued(server, 'outbox', 1);
  await named(successor).close();
  await begun(5);
});

afterAll(async () => {
  await Promise.all(processes.map((each) => each.kill()));
  await server.stop();
  journal.remove();
});

const lastTerm = () => journal.entries('began').at(-1)!.term;
const byTime = (entries: Entry[]) => [...entries].sort((one, other) => Number(one.at - other.at));

it('three processes lead one after the other, through kill -9, SIGSTOP, a resignation and a shutdown, in rising terms [G311]', () => {
  const began = journal.entries('began');
  expect(began.map(({ process }) => process)).toEqual(['a', successor, other, successor, other]);
  const terms = began.map(({ term }) => term);
  expect(terms).toEqual([...new Set(terms)].sort((one, other) => one - other));
});

it('at no moment do two processes pass assertHeld, though leaders are killed, stopped, resign and close [G310]', () => {
  const terms = byTime(journal.entries('held')).map(({ term }) => term);
  expect(terms.length).toBeGreaterThanOrEqual(5 * LOOKS);
  expect(new Set(terms).size).toBe(5);
  // If a leader had passed after a later one, its entry would come after that.
  expect(terms).toEqual([...terms].sort((one, other) => one - other));
});

it('the write of a leader that was stopped for longer than its lease is refused by its term at the resource [G313]', () => {
  const store = new FencedStore();
  const late = journal.entries('late');
  const written = byTime(journal.entries('held', 'late')); // a process may be stopped before it has noted what it wrote
  const refused = written.filter(({ term, process }) => !store.write(process, term));
  expect(late.map(({ process }) => process)).toEqual([successor]);
  expect(refused).toEqual(late);
});

it('the work of a leader that resigns or closes has ended before the work of the next one begins [G314]', () => {
  const [third, fourth, fifth] = journal.entries('began').slice(2);
  const ended = (entry: Entry) => journal.entries('ended').find(({ term }) => term === entry.term)!.at;
  expect(ended(third!)).toBeLessThan(fourth!.at);
  expect(ended(fourth!)).toBeLessThan(fifth!.at);
});
