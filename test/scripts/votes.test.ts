import { Redis } from 'ioredis';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { RAISE_FENCE, VOTE, VOTE_OR_QUEUE } from '../../lib/stores/redis/scripts/lua.js';
import { LIMIT_US } from '../../lib/stores/redis/node/node-answers.js';
import { queueEntry } from '../../lib/stores/redis/scripts/hand-off.js';
import { tokenText } from '../../lib/stores/redis/node/lock-keys.js';
import { ScriptRunner, type Reply } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';

const [ADMISSION, LOCK, FENCE, QUEUE] = ['lock:admission', 'lock:{k}', 'lock:fence:77', 'lock:{k}:queue'];
const TTL_MS = 10_000;
/** Ahead of the clock of any server until the year 2223. */
const AHEAD = 8e15;
const HOUR_US = 3_600_000_000;

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
/** Near the time of the node for nearly two seconds from now. */
const nearUs = async () => (await timeUs()) + 0.9 * LIMIT_US;
const untouched = async () => expect(await client.exists(LOCK, FENCE)).toBe(0);

interface Attempt {
  lock?: string;
  fence?: string;
  epoch?: string;
}

describe.each<[name: string, flag: string, vote: (proposal: number, attempt?: Attempt) => Promise<Reply>]>([
  [
    'vote',
    '',
    (proposal, { lock = LOCK, fence = FENCE, epoch = '' } = {}) =>
      runScript(runner, VOTE, [ADMISSION, lock, fence], [epoch, TTL_MS, `me@${tokenText(proposal)}`]),
  ],
  [
    'vote for one who waits',
    '+',
    (proposal, { lock = LOCK, fence = FENCE, epoch = '' } = {}) =>
      runScript(
        runner,
        VOTE_OR_QUEUE,
        [ADMISSION, lock, fence, `${lock}:queue`],
        [epoch, TTL_MS, `me@${tokenText(proposal)}`, queueEntry('wake', 'inbox:any', 'me', 1), 0, 1],
      ),
  ],
])('A node of a Redlock: %s', (_name, flag, vote) => {
  it('votes for the proposals of all locks of a call, each with its own counter, without a second look', async () => {
    await vote(await nearUs());
    await client.flushdb();
    await server.resetCalls();
    const proposal = await nearUs();
    const locks = Array.from({ length: 10 }, (_, index) => ({ lock: `lock:{${index}}`, fence: `lock:fence:${index}` }));
    const votes = await together(runner, () => Promise.all(locks.map((lock) => vote(proposal, lock))));
    expect(votes).toEqual(Array(10).fill(tokenText(proposal)));
    expect(await server.calls()).toMatchObject({ evalsha: 2, set: 20 });
  });

  it('moves a proposal of more than 9e15, and one of 0', async () => {
    const [highest, , nodeTimeUs] = (await vote(Number.MAX_SAFE_INTEGER)) as [string, string, number];
    expect(highest).toBe(tokenText(nodeTimeUs + LIMIT_US));
    await client.del(LOCK, FENCE);
    const [lowest, , laterUs] = (await vote(0)) as [string, string, number];
    expect(lowest).toBe(tokenText(laterUs - LIMIT_US));
  });

  it('goes on from a counter that equals the proposal', async () => {
    const proposal = await nearUs();
    await client.set(FENCE, tokenText(proposal));
    expect(await vote(proposal)).toEqual([tokenText(proposal + 1), 'at', expect.any(Number)]);
    expect(await client.get(FENCE)).toBe(tokenText(proposal + 1));
  });

  it('votes near its time where its counter is of an older snapshot', async () => {
    const old = (await timeUs()) - HOUR_US;
    await client.set(FENCE, tokenText(old));
    const [text, , nodeTimeUs] = (await vote(old + 1)) as [string, string, number];
    expect(text).toBe(tokenText(nodeTimeUs - LIMIT_US));
    await client.del(LOCK);
    await client.set(FENCE, tokenText(old));
    const proposal = await nearUs();
    expect(await vote(proposal)).toBe(tokenText(proposal));
  });

  it('answers with the token of its vote also where the node has lost its counter since', async () => {
    const proposal = await nearUs();
    await vote(proposal);
    await client.del(FENCE);
    expect(await vote(proposal, { epoch: '7' })).toBe(tokenText(proposal));
    expect(await client.exists(FENCE)).toBe(0);
  });

  describe.each([
    ['near its time', 0],
    ['far ahead', HOUR_US],
    ['far behind', -HOUR_US],
  ])('that has no counter, and a proposal %s', (_where, offsetUs) => {
    it.each([
      ['no admission', undefined],
      ['another admission since', '1763000000000000 20 another-run'],
      ['an admission that begins alike', '77 20 another-run'],
      ['an admission that is no string', ['a list']],
    ])('has lost its data, says so, and keeps neither lock nor counter: %s', async (_what, admission) => {
      if (typeof admission === 'string') await client.set(ADMISSION, admission);
      else if (admission) await client.rpush(ADMISSION, ...admission);
      expect(await vote((await nearUs()) + offsetUs, { epoch: '7' })).toEqual(['wiped', '7']);
      await untouched();
    });

    it('votes in the epoch in which it was admitted', async () => {
      await client.set(ADMISSION, '7 20 run');
      const reply = await vote((await nearUs()) + offsetUs, { epoch: '7' });
      const [token] = [reply].flat();
      expect(token).toMatch(/^\d{16}$/);
      expect(await client.mget(LOCK, FENCE)).toEqual([`me@${token}${flag}`, token]);
    });

    it('votes without an epoch, whatever it was admitted for', async () => {
      const reply = await vote((await nearUs()) + offsetUs);
      expect([reply].flat()[0]).toMatch(/^\d{16}$/);
    });
  });

  it('does not ask the admission where it has counted before', async () => {
    await client.set(ADMISSION, '8 20 another-run');
    await client.set(FENCE, tokenText(await timeUs()));
    const proposal = (await nearUs()) + 1;
    expect(await vote(proposal, { epoch: '7' })).toBe(tokenText(proposal));
    await client.set(FENCE, AHEAD);
    await client.del(LOCK);
    expect(await vote(proposal, { epoch: '7' })).toEqual([tokenText(AHEAD + 1), 'at', expect.any(Number)]);
  });
});

describe('The write-back of a token', () => {
  const VOTED = '1700000000000005';
  const HIGH = '1700000000000009';
  const raise = (token: string, owner = 'me') => runScript(runner, RAISE_FENCE, [LOCK, FENCE], [`${owner}@`, token]);
  const held = (flag: string, token = VOTED) => client.set(LOCK, `me@${token}${flag}`, 'PX', TTL_MS);
  const state = () => client.mget(LOCK, FENCE);

  it.each(['me', 'me@', 'me@123', `me@${VOTED}0`, `me@${VOTED}++`, ''])(
    'is refused when another program has written the lock: %j',
    async (value) => {
      await client.set(LOCK, value);
      await client.set(FENCE, VOTED);
      expect(await raise(HIGH)).toBe(0);
      expect(await state()).toEqual([value, VOTED]);
    },
  );

  it.each(['7', 'a word', '0000000000000007'])(
    'raises a counter that is few digits, or no number: %j',
    async (before) => {
      await held('');
      await client.set(FENCE, before);
      expect(await raise(HIGH)).toBe(1);
      expect(await state()).toEqual([`me@${HIGH}`, HIGH]);
    },
  );

  it('fails when the counter is a list, and the lock stays as it is', async () => {
    await held('+');
    await client.rpush(FENCE, 'a', 'list');
    await expect(raise(HIGH)).rejects.toMatchObject({ message: expect.stringMatching(/WRONGTYPE/), mayHaveRun: false });
    expect(await client.get(LOCK)).toBe(`me@${VOTED}+`);
    expect(await client.lrange(FENCE, 0, -1)).toEqual(['a', 'list']);
  });

  it('fails without memory, and changes nothing', async () => {
    await held('+');
    await client.set(FENCE, VOTED);
    await client.config('SET', 'maxmemory', 1);
    const refused = await raise(HIGH).catch((fault: unknown) => fault);
    await client.config('SET', 'maxmemory', 0);
    expect(refused).toMatchObject({ message: expect.stringMatching(/OOM/), mayHaveRun: false });
    expect(await state()).toEqual([`me@${VOTED}+`, VOTED]);
  });

  it('leaves the queue as it is', async () => {
    await held('+');
    await client.set(FENCE, VOTED);
    await client.zadd(QUEUE, 1, queueEntry('wake', 'inbox:any', 'next', 1));
    expect(await raise(HIGH)).toBe(1);
    expect(await client.zrange(QUEUE, '0', '-1')).toEqual([queueEntry('wake', 'inbox:any', 'next', 1)]);
  });
});
