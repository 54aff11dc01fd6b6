import { afterAll, beforeAll, expect, it } from 'vitest';
import { queued } from '../support/queue.js';
import { randomOf } from '../support/random.js';
import { RedisServer } from '../support/redis-server.js';
import { keysOfLocks } from '../support/stored.js';
import { until } from '../support/until.js';
import { SetProcess, type Turn, type Wish } from './set-process.js';

let server: RedisServer;
let processes: SetProcess[];

/** A lock that nobody releases stays for longer than any test. */
const TTL_MS = 60_000;

beforeAll(async () => {
  server = await RedisServer.start();
  const options = { redis: server.url, ttlMs: TTL_MS, waitMs: 60_000, commandTimeoutMs: 20_000 };
  const start = () => SetProcess.start(options);
  processes = await Promise.all([start(), start(), start()]);
});
afterAll(async () => {
  await Promise.all(processes.map((each) => each.kill()));
  await server.stop();
});

const byTime = (one: Turn, other: Turn) => Number(one.from - other.from);
const ofKey = (turns: readonly Turn[], key: string) => turns.filter(({ keys }) => keys.includes(key)).sort(byTime);

/** Turns of a key that began before earlier turns had ended, or whose token is not larger. */
function overlaps(turns: readonly Turn[], key: string): Turn[] {
  const token = ({ keys, tokens }: Turn) => tokens[keys.indexOf(key)]!;
  return ofKey(turns, key).filter((turn, index, all) => {
    const before = all[index - 1];
    return before && (turn.from < before.to || token(turn) <= token(before));
  });
}

/** The locks that are held, without queues. */
const lockKeys = async () => (await keysOfLocks(server)).filter((key) => key.endsWith('}'));

async function nothingIsLeft(): Promise<void> {
  await until(async () => (await keysOfLocks(server)).length === 0, { what: 'all locks are given back' });
  expect(await Promise.all(processes.map((each) => each.size()))).toEqual([0, 0, 0]);
}

it('300 random pairs of overlapping sets in three processes all end, none keeps a part, and each key has one holder at a time [G390]', async () => {
  const random = randomOf(17);
  const keys = [...'abcdefghijkl'].map((letter) => `pair:${letter}`);
  const randomWish = (): Wish => {
    const some = [...keys].sort(() => random() - 0.5).slice(0, 2 + Math.floor(random() * 2));
    return { keys: some, ...(random() < 0.3 && { waitMs: Math.floor(random() * 4) }) }; // the others wait for a minute
  };
  const wishes = processes.map(() => Array.from({ length: 200 }, randomWish));
  const outcomes = await Promise.all(processes.map((each, index) => each.turns(wishes[index]!, 4)));
  const turns = outcomes.flatMap((outcome) => outcome.turns);
  const refusals = outcomes.flatMap((outcome) => outcome.refusals);
  expect(turns.length + refusals.length).toBe(600);
  const patient = wishes.flat().filter(({ waitMs }) => waitMs === undefined);
  expect(turns.length).toBeGreaterThanOrEqual(patient.length);
  expect(refusals.length).toBeGreaterThan(15);
  // Unavailable: a call that may wait for a millisecond had no answer yet.
  expect(new Set([...refusals, 'LOCK_UNAVAILABLE'])).toEqual(new Set(['LOCK_CONTENDED', 'LOCK_UNAVAILABLE']));
  for (const key of keys) expect(overlaps(turns, key)).toEqual([]);
  await nothingIsLeft();
});

it('five philosophers who all take the left fork first eat as often as they want [G391]', async () => {
  const MEALS = 40;
  const fork = (seat: number) => `fork:${seat % 5}`;
  const dine = async (seat: number) => {
    const meals = Array.from({ length: MEALS }, () => ({ keys: [fork(seat), fork(seat + 1)] }));
    return processes[seat % 3]!.turns(meals);
  };
  const meals = (await Promise.all([0, 1, 2, 3, 4].map(dine))).map(({ turns }) => turns);
  expect(meals.map(({ length }) => length)).toEqual(Array.from({ length: 5 }, () => MEALS));
  for (let seat = 0; seat < 5; seat++) expect(overlaps(meals.flat(), fork(seat))).toEqual([]);
  await nothingIsLeft();
});

/** Whether a turn was granted after another one had been requested, and before that one was granted. */
function isWithin(turn: Turn, { askedAt, from }: Turn): boolean {
  return turn.from > askedAt && turn.from < from;
}

it('sets are served after a bounded number of turns of single locks, although their keys are never free at the same moment [G393]', async () => {
  const [crowd, other, own] = processes as [SetProcess, SetProcess, SetProcess];
  const keys = ['single:1', 'single:2'];
  await Promise.all([crowd.crowd(keys, 3), other.crowd(keys, 3)]);
  const wishes = Array.from({ length: 50 }, () => ({ keys: [...keys].reverse() }));
  const sets = await own.turns(wishes, 2);
  const singles = (await Promise.all([crowd.disperse(), other.disperse()])).flat();
  expect(sets.turns).toHaveLength(50);
  for (const key of keys) expect(overlaps([...singles, ...sets.turns], key)).toEqual([]);
  const before = sets.turns.map((set) => singles.filter((single) => isWithin(single, set)).length);
  // In the queue of each key a set waits for batches of three of both processes, perhaps also for the batches before
  // another set.
  const [median] = before.sort((one, other) => one - other).slice(25); // a process may pause between asking and waiting
  expect(median).toBeGreaterThan(0);
  expect(median).toBeLessThanOrEqual(60);
  await nothingIsLeft();
});

it('processes that are killed amid an acquisition, and amid the work, leave locks that end with their ttl [G392]', async () => {
  const DEAD_MS = 5_000;
  const [survivor, acquiring, working] = processes as [SetProcess, SetProcess, SetProcess];
  await working.hold(['work:1', 'work:2', 'amid:2'], DEAD_MS);
  void acquiring.hold(['amid:3', 'amid:1', 'amid:2'], DEAD_MS);
  await until(async () => (await queued(server, 'amid:2')) === 1, { what: 'the set waits for its second key' });
  const held = ['amid:1', 'amid:2', 'work:1', 'work:2'];
  expect(await lockKeys()).toEqual(held.map((key) => `lock:{${key}}`));
  await Promise.all([acquiring.kill(), working.kill()]);
  for (const key of held) expect(await server.command('PTTL', `lock:{${key}}`)).toBeLessThanOrEqual(DEAD_MS);
  const { turns } = await survivor.turns([{ keys: ['amid:1', 'amid:2', 'amid:3'] }, { keys: ['work:1', 'work:2'] }], 2);
  expect(turns).toHaveLength(2);
});
