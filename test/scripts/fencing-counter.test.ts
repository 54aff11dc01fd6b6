import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ACQUIRE, CONTEND, VOTE, VOTE_OR_QUEUE } from '../../lib/stores/redis/scripts/lua.js';
import { FENCE_TTL_MS } from '../../lib/stores/redis/scripts/fence.js';
import { ScriptRunner, type Reply } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';

const [LOCK, FENCE, QUEUE, GUARD] = ['lock:{k}', 'lock:{k}:fence', 'lock:{k}:queue', 'lock:admission'];
/** Ahead of the clock of any server until the year 2223. */
const AHEAD = 8e15;

let server: RedisServer;
let client: Redis;
let runner: ScriptRunner;
beforeAll(async () => {
  server = await RedisServer.start();
  client = new Redis(server.url);
  await client.ping();
  runner = new ScriptRunner(portOf(client), 5_000);
});
beforeEach(() => client.flushall());
afterAll(async () => {
  client.disconnect();
  await server.stop();
});

const timeUs = async () => {
  const [seconds, micros] = await client.time();
  return Number(seconds) * 1_000_000 + Number(micros);
};
const counter = async () => Number(await client.get(FENCE));

describe.each([
  ['acquire', 1, () => runScript(runner, ACQUIRE, [LOCK, FENCE], ['me', 10_000])],
  [
    'contend for three holders',
    3,
    () => runScript(runner, CONTEND, [LOCK, FENCE, QUEUE], ['me', 10_000, 3, '', '', 0]),
  ],
  ['vote as a node of a Redlock', 1, () => runScript(runner, VOTE, [LOCK, FENCE, GUARD], ['me', 10_000, '', ''])],
  [
    'vote for one who waits',
    1,
    () => runScript(runner, VOTE_OR_QUEUE, [LOCK, FENCE, QUEUE, GUARD], ['me', 10_000, 1, '', '', 0, '', '']),
  ],
] as const)('The counter of fencing tokens: %s', (_name, count, mint: () => Promise<Reply>) => {
  it('starts at the time of the server in microseconds', async () => {
    const before = await timeUs();
    const first = await mint();
    expect(first).toBeGreaterThanOrEqual(before);
    expect(first).toBeLessThanOrEqual(await timeUs());
    expect(await counter()).toBe(Number(first) + count - 1);
    expect(await client.pttl(FENCE)).toBeGreaterThan(FENCE_TTL_MS - 60_000);
  });

  it('moves on to the time of the server, which is ahead of it', async () => {
    await client.set(FENCE, 7);
    const before = await timeUs();
    const first = await mint();
    expect(first).toBeGreaterThanOrEqual(before);
    expect(await counter()).toBe(Number(first) + count - 1);
  });

  it('counts on where it is ahead of the time of the server', async () => {
    await client.set(FENCE, AHEAD);
    for (let round = 0; round < 3; round++) {
      expect(await mint()).toBe(AHEAD + round * count + 1);
      expect(await counter()).toBe(AHEAD + (round + 1) * count);
      expect(await client.pttl(FENCE)).toBeGreaterThan(FENCE_TTL_MS - 60_000);
    }
  });

  it('gives no token twice within one call, which has one time', async () => {
    const tokens = (await together(runner, () => Promise.all([mint(), mint(), mint()]))).map(Number);
    expect(tokens).toEqual([0, 1, 2].map((round) => tokens[0]! + round * count));
    expect(await counter()).toBe(tokens[0]! + 3 * count - 1);
  });

  it('stays as it is when it is a word, and the lock is free, however often it is asked for', async () => {
    await client.set(FENCE, 'word');
    for (let round = 0; round < 2; round++) {
      await expect(mint()).rejects.toMatchObject({
        message: expect.stringMatching(/not an integer/),
        mayHaveRun: false,
      });
      expect(await client.get(FENCE)).toBe('word');
      expect(await client.exists(LOCK)).toBe(0);
    }
  });

  it('stays as it is when it is a list, and the lock is free, however often it is asked for', async () => {
    await client.rpush(FENCE, 'a', 'list');
    for (let round = 0; round < 2; round++) {
      await expect(mint()).rejects.toMatchObject({ message: expect.stringMatching(/WRONGTYPE/), mayHaveRun: false });
      expect(await client.lrange(FENCE, 0, -1)).toEqual(['a', 'list']);
      expect(await client.exists(LOCK)).toBe(0);
    }
  });

  it('stays as it is when there is no memory for the lock', async () => {
    await client.set(FENCE, AHEAD);
    await client.config('SET', 'maxmemory', 1);
    const refused = await mint().catch((fault: unknown) => fault);
    await client.config('SET', 'maxmemory', 0);
    expect(refused).toMatchObject({ message: expect.stringMatching(/OOM/), mayHaveRun: false });
    expect(await counter()).toBe(AHEAD);
    expect(await client.exists(LOCK)).toBe(0);
  });
});

describe.each([
  ['vote', () => runScript(runner, VOTE, [LOCK, FENCE, GUARD], ['me', 10_000, 'epoch', ''])],
  [
    'vote for one who waits',
    () => runScript(runner, VOTE_OR_QUEUE, [LOCK, FENCE, QUEUE, GUARD], ['me', 10_000, 1, '', '', 0, 'epoch', '']),
  ],
] as const)('A node of a Redlock that has lost its data: %s', (_name, vote: () => Promise<Reply>) => {
  it.each([
    ['and its guard', undefined],
    ['and has another guard since', '1763000000000000 20 another-run'],
    ['whose guard is no string', ['a list']],
  ])('%s, says so, and keeps neither lock nor counter', async (_what, guard) => {
    if (typeof guard === 'string') await client.set(GUARD, guard);
    else if (guard) await client.rpush(GUARD, ...guard);
    expect(await vote()).toEqual(['wiped', 'epoch']);
    expect(await client.exists(LOCK, FENCE)).toBe(0);
  });

  it('leaves a counter that was written by others', async () => {
    await client.set(FENCE, 7);
    expect(await vote()).toEqual(['wiped', 'epoch']);
    expect(await client.exists(LOCK)).toBe(0);
    expect(await counter()).toBeGreaterThanOrEqual(7);
  });

  it('does not ask the guard where it has counted before', async () => {
    await client.set(FENCE, AHEAD);
    expect(await vote()).toBe(AHEAD + 1);
  });
});

describe.each([
  ['vote', (from: number) => runScript(runner, VOTE, [LOCK, FENCE, GUARD], ['me', 10_000, '7', from])],
  [
    'vote for one who waits',
    (from: number) =>
      runScript(runner, VOTE_OR_QUEUE, [LOCK, FENCE, QUEUE, GUARD], ['me', 10_000, 1, '', '', 0, '7', from]),
  ],
] as const)(
  'A node of a Redlock that may have an older snapshot: %s',
  (_name, vote: (from: number) => Promise<Reply>) => {
    beforeEach(() => client.set(GUARD, '7 20 run'));

    it('moves on to its time from a counter that is below the time from which it votes', async () => {
      const before = await timeUs();
      await client.set(FENCE, before - 2);
      expect(await vote(before)).toBeGreaterThanOrEqual(before);
      expect(await counter()).toBeGreaterThanOrEqual(before);
    });

    it('counts on from one that its time is behind', async () => {
      await client.set(FENCE, AHEAD);
      expect(await vote(AHEAD + 2)).toBe(AHEAD + 1);
      expect(await counter()).toBe(AHEAD + 1);
    });

    it('counts on from one that was made since', async () => {
      const from = (await timeUs()) - 1_000_000;
      await client.set(FENCE, from);
      expect(await vote(from)).toBe(from + 1);
      expect(await client.pttl(FENCE)).toBeGreaterThan(FENCE_TTL_MS - 60_000);
    });

    it('asks the guard where its counter may be old', async () => {
      await client.set(GUARD, '8 20 another-run');
      await client.set(FENCE, AHEAD);
      expect(await vote(AHEAD + 2)).toEqual(['wiped', '7']);
      expect(await client.exists(LOCK)).toBe(0);
      expect(await counter()).toBeGreaterThanOrEqual(AHEAD);
    });
  },
);
