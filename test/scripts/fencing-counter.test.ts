import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { ACQUIRE, TURN, VOTE, VOTE_OR_QUEUE } from '../../lib/stores/redis/scripts/lua.js';
import { tokenText } from '../../lib/stores/redis/node/lock-keys.js';
import { ScriptRunner, type Reply } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';

const [FENCE, LOCK] = ['lock:fence', 'lock:{k}'];
const ADMISSION = 'lock:admission';
/** Ahead of the clock of any server until the year 2223. */
const AHEAD = 8e15;

let server: RedisServer;
let client: Redis;
let runner: ScriptRunner;
beforeAll(async () => {
  server = await RedisServer.start();
  client = new Redis(server.url);
  await client.ping();
  runner = new ScriptRunner(portOf(client), 30_000);
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
/** A vote that is not the proposal has the time of the node beside it, and the grant of a waiter what else it has to know. */
const tokenOf = (reply: Reply) => Number(Array.isArray(reply) ? reply[reply.length === 6 ? 3 : 0] : reply);

const acquire = (lock: string) => runScript(runner, ACQUIRE, [FENCE, lock], [10_000, 'me@']);
const contend = (lock: string, count: number) =>
  runScript(runner, TURN, [FENCE, lock, `${lock}:queue`], ['h', '', 'me@', 10_000, count, '', '', 0, 0]);

describe.each<[name: string, count: number, mint: (lock: string, nowUs: number) => Promise<Reply>]>([
  ['acquire', 1, acquire],
  ['contend', 1, (lock) => contend(lock, 1)],
  ['contend for three holders', 3, (lock) => contend(lock, 3)],
  [
    'vote as a node of a Redlock',
    1,
    (lock, nowUs) => runScript(runner, VOTE, [ADMISSION, lock, FENCE], ['', 10_000, `me@${tokenText(nowUs)}`]),
  ],
  [
    'vote for one who waits',
    1,
    (lock, nowUs) =>
      runScript(
        runner,
        VOTE_OR_QUEUE,
        [ADMISSION, lock, FENCE, `${lock}:queue`],
        ['', 10_000, `me@${tokenText(nowUs)}`, '', '', 0],
      ),
  ],
])('The counter of fencing tokens: %s', (_name, count, mint) => {
  it('starts at the time of the server in microseconds, and has no ttl', async () => {
    const before = await timeUs();
    const first = tokenOf(await mint(LOCK, before));
    expect(first).toBeGreaterThanOrEqual(before);
    expect(first).toBeLessThanOrEqual(await timeUs());
    expect(await client.get(FENCE)).toBe(tokenText(first + count - 1));
    expect(await client.pttl(FENCE)).toBe(-1);
  });

  it.each([
    ['7', 'few digits'],
    ['1700000000000000', 'sixteen digits'],
    ['0000000000000007', 'leading zeros'],
  ])('moves on to the time of the server, which is ahead of it: %s, %s', async (behind) => {
    await client.set(FENCE, behind);
    const before = await timeUs();
    const first = tokenOf(await mint(LOCK, before));
    expect(first).toBeGreaterThanOrEqual(before);
    expect(await client.get(FENCE)).toBe(tokenText(first + count - 1));
  });

  it('gives no token twice within one call, which has one time', async () => {
    const nowUs = await timeUs();
    const locks = ['lock:{a}', 'lock:{b}', 'lock:{c}'];
    const replies = await together(runner, () => Promise.all(locks.map((lock) => mint(lock, nowUs))));
    const tokens = replies.map(tokenOf);
    expect(tokens).toEqual([0, 1, 2].map((round) => tokens[0]! + round * count));
    expect(await counter()).toBe(tokens[0]! + 3 * count - 1);
    expect(await client.mget(locks)).toEqual(
      tokens.map((token): unknown => expect.stringMatching(new RegExp(`^me@${token + count - 1}\\+?$`))),
    );
  });

  it.each(['word', 'a word of sixteen', '', '-inf', '+1e9', '17000000000000ab', '~~~~~~~~~~~~~~~~'])(
    'counts as lost when it is no number, and starts at the time of the server: %j',
    async (word) => {
      await client.set(FENCE, word);
      const before = await timeUs();
      const first = tokenOf(await mint(LOCK, before));
      expect(first).toBeGreaterThanOrEqual(before);
      expect(first).toBeLessThanOrEqual(await timeUs());
      expect(await client.get(FENCE)).toBe(tokenText(first + count - 1));
    },
  );

  it('stays as it is when it is a list, and the lock is free, however often it is asked for', async () => {
    await client.rpush(FENCE, 'a', 'list');
    for (let round = 0; round < 2; round++) {
      await expect(mint(LOCK, await timeUs())).rejects.toMatchObject({
        message: expect.stringMatching(/WRONGTYPE/),
        mayHaveRun: false,
      });
      expect(await client.lrange(FENCE, 0, -1)).toEqual(['a', 'list']);
      expect(await client.exists(LOCK)).toBe(0);
    }
  });

  it.each(['9000000000000000', '8999999999999999', '9e15', '9e18', 'inf', '10000000000000000', '17999999999999999'])(
    'stays as it is when it is out of range, and the lock is free, however often it is asked for: %s',
    async (value) => {
      await client.set(FENCE, value);
      for (let round = 0; round < 2; round++) {
        await expect(mint(LOCK, await timeUs())).rejects.toMatchObject({
          message: 'ERR the fencing counter lock:fence is out of range: delete it',
          mayHaveRun: false,
        });
        expect(await client.get(FENCE)).toBe(value);
        expect(await client.exists(LOCK)).toBe(0);
      }
    },
  );

  it('fails every lock of a call when it is out of range, and leaves all of them free', async () => {
    await client.set(FENCE, '9e15');
    const nowUs = await timeUs();
    const locks = ['lock:{a}', 'lock:{b}', 'lock:{c}'];
    const outcomes = await together(runner, () => Promise.allSettled(locks.map((lock) => mint(lock, nowUs))));
    expect(outcomes.map(({ status }) => status)).toEqual(['rejected', 'rejected', 'rejected']);
    expect(await client.exists(...locks)).toBe(0);
    expect(await client.get(FENCE)).toBe('9e15');
  });

  it('stays as it is when there is no memory for the lock', async () => {
    await client.set(FENCE, AHEAD);
    await client.config('SET', 'maxmemory', 1);
    const refused = await mint(LOCK, await timeUs()).catch((fault: unknown) => fault);
    await client.config('SET', 'maxmemory', 0);
    expect(refused).toMatchObject({ message: expect.stringMatching(/OOM/), mayHaveRun: false });
    expect(await counter()).toBe(AHEAD);
    expect(await client.exists(LOCK)).toBe(0);
  });

  it('is not used for a lock that another holds', async () => {
    await client.set(LOCK, 'other@1700000000000000');
    await client.set(FENCE, 'as it is');
    expect(await mint(LOCK, await timeUs())).toEqual(expect.arrayContaining([-1, 'other@1700000000000000']));
    expect(await client.get(FENCE)).toBe('as it is');
  });
});

describe('A call that acquires many locks', () => {
  const LOCKS = Array.from({ length: 50 }, (_, index) => `lock:{${index}}`);
  const acquireAll = (owner: string) =>
    together(runner, () =>
      Promise.all(LOCKS.map((lock) => runScript(runner, ACQUIRE, [FENCE, lock], [10_000, `${owner}@`]))),
    );

  it('writes the counter once for all of them', async () => {
    await acquire('warm-up');
    await server.resetCalls();
    const tokens = (await acquireAll('me')).map(tokenOf);
    const { evalsha, set } = await server.calls();
    expect({ evalsha, set }).toEqual({ evalsha: 2, set: 50 + 1 });
    expect(tokens).toEqual(tokens.map((_, index) => tokens[0]! + index));
    expect(await counter()).toBe(tokens[49]);
  });

  it('writes the counter, and the first lock, once more where it is ahead of the clock', async () => {
    await acquire('warm-up');
    await client.set(FENCE, AHEAD);
    await server.resetCalls();
    const tokens = (await acquireAll('me')).map(tokenOf);
    expect((await server.calls()).set).toBe(50 + 1 + 2);
    expect(tokens).toEqual(tokens.map((_, index) => AHEAD + 1 + index));
    expect(await counter()).toBe(AHEAD + 50);
    expect(await client.mget(LOCKS)).toEqual(tokens.map((token) => `me@${token}`));
  });

  it('reserves blocks of tokens that together reach no further ahead of the clock than a millisecond, for as many as wait [G640]', async () => {
    const [alone, ...others] = LOCKS;
    const replies = await together(runner, () =>
      Promise.all([contend(alone!, 1), ...others.map((lock) => contend(lock, 101))]),
    );
    const us = Number((replies.at(-1) as number[])[2]);
    const blocks = replies.slice(1).map((reply) => (reply as number[]).slice(3, 5).map(Number)) as [number, number][];
    expect(blocks[0]![1] - blocks[0]![0]).toBe(100);
    blocks.slice(1).forEach(([first], index) => expect(first).toBe(blocks[index]![1] + 1));
    expect(await counter()).toBe(blocks.at(-1)![1]);
    expect(await counter()).toBeLessThanOrEqual(us + 1_000 + LOCKS.length);
  });

  it('counts on for those that wait with one write for each, though its time stands still', async () => {
    await contend('lock:{warm-up}', 1);
    await server.resetCalls();
    await together(runner, () => Promise.all(LOCKS.map((lock) => contend(lock, 1))));
    expect(await server.calls()).toMatchObject({ evalsha: 2, set: 50 + 50, time: 1 });
  });
});
