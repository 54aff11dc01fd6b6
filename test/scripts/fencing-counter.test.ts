import { describe, expect, it } from 'vitest';
import { MAX_PROPOSAL_DISTANCE_US } from '../../lib/stores/redis/node/lock-scripts.js';
import { tokenText } from '../../lib/stores/redis/node/lock-keys.js';
import { together } from '../support/together.js';
import {
  ACQUIRE,
  client,
  FENCE,
  onServer,
  type Reply,
  run,
  runner,
  timeUs,
  TURN,
  VOTE,
  VOTE_OR_QUEUE,
} from './script-server.js';

const [LOCK, ADMISSION] = ['lock:{k}', 'lock:admission'];

onServer();

const counter = async () => Number(await client.get(FENCE));
/** The reply for a vote that differs from the proposal, and the grant of a waiter, begin with a word that says so. */
const tokenOf = (reply: Reply) => Number(Array.isArray(reply) ? reply[reply[0] === 'at' ? 1 : 3] : reply);

const acquire = (lock: string) => run(ACQUIRE, [FENCE, lock], 10_000, 'me@');
const contend = (lock: string, count: number) =>
  run(TURN, [FENCE, lock, `${lock}:queue`], 'h', '', 'me@', 10_000, count, '', '', 0, 0);

describe.each<[name: string, count: number, mint: (lock: string, nowUs: number) => Promise<Reply>]>([
  ['acquire', 1, acquire],
  ['contend for three holders', 3, (lock) => contend(lock, 3)],
  [
    'vote as a node of a Redlock',
    1,
    (lock, nowUs) => run(VOTE, [ADMISSION, lock, FENCE], '', 10_000, `me@${tokenText(nowUs)}`),
  ],
  [
    'vote for one who waits',
    1,
    (lock, nowUs) =>
      run(VOTE_OR_QUEUE, [ADMISSION, lock, FENCE, `${lock}:queue`], '', 10_000, `me@${tokenText(nowUs)}`, '', '', 0),
  ],
])('The counter of fencing tokens: %s', (_name, count, mint) => {
  it.each([
    undefined,
    ...['7', '1700000000000000', '0000000000000007'],
    ...['word', '', '-inf', '17000000000000ab', '~~~~~~~~~~~~~~~~'],
  ])(
    'is at the time of the server in microseconds, without a ttl, when it was missing, behind, or not a number: %j',
    async (earlier) => {
      if (earlier !== undefined) await client.set(FENCE, earlier);
      const before = await timeUs();
      const first = tokenOf(await mint(LOCK, before));
      expect(first).toBeGreaterThanOrEqual(before);
      expect(first).toBeLessThanOrEqual(await timeUs());
      expect(await client.get(FENCE)).toBe(tokenText(first + count - 1));
      expect(await client.pttl(FENCE)).toBe(-1);
    },
  );

  it.each(['9000000000000000', '8999999999999999', '9e18', 'inf', '17999999999999999'])(
    'stays as it is when it is out of range, and the lock remains free, however often it is requested: %s',
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
});

it.each([
  ['acquire', ACQUIRE, [10_000, 'me@']],
  ['turn', TURN, ['h', '', 'me@', 10_000, 1, '', '', 0, 0]],
])('no token is given twice to calls that run at the same moment: %s', async (_name, { source }, args) => {
  const calls = ['a', 'b', 'c'].map((lock) => `call({'${FENCE}', '${lock}', '${lock}:queue'}, ARGV)`);
  const script = `local server, time = redis, redis.call('TIME')
  local redis = {pcall = server.pcall}
  function redis.call(name, ...)
    if name == 'TIME' then return time end
    return server.call(name, ...)
  end
  local function call(all, ARGV)
    local KEYS = {unpack(all, 1, #ARGV > 2 and 3 or 2)}
    ${source}
  end
  return {${calls.join()}}`;
  const tokens = ((await client.eval(script, 0, ...args)) as Reply[]).map(tokenOf);
  expect(tokens).toEqual([0, 1, 2].map((more) => tokens[0]! + more));
});

describe('A call that acquires many locks', () => {
  const LOCKS = Array.from({ length: 50 }, (_, index) => `lock:{${index}}`);

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
});

describe('A proposal for a vote', () => {
  const vote = async (proposal: number) => run(VOTE, [ADMISSION, LOCK, FENCE], '', 10_000, `me@${tokenText(proposal)}`);
  /** Near the time of the node for almost two seconds from now. */
  const nearUs = async () => (await timeUs()) + 0.9 * MAX_PROPOSAL_DISTANCE_US;

  it('that is far from the time of the node is moved as near to it as it has to be', async () => {
    const [, highest, nodeTimeUs] = (await vote(Number.MAX_SAFE_INTEGER)) as [string, string, number];
    expect(highest).toBe(tokenText(nodeTimeUs + MAX_PROPOSAL_DISTANCE_US));
    await client.del(LOCK, FENCE);
    const [, lowest, laterUs] = (await vote(0)) as [string, string, number];
    expect(lowest).toBe(tokenText(laterUs - MAX_PROPOSAL_DISTANCE_US));
  });

  it('that is behind a counter of an old snapshot is moved to the time of the node', async () => {
    const old = (await timeUs()) - 3_600_000_000;
    await client.set(FENCE, tokenText(old));
    const [, text, nodeTimeUs] = (await vote(old + 1)) as [string, string, number];
    expect(text).toBe(tokenText(nodeTimeUs - MAX_PROPOSAL_DISTANCE_US));
  });

  it('that the counter equals is moved to the next token', async () => {
    const proposal = await nearUs();
    await client.set(FENCE, tokenText(proposal));
    expect(await vote(proposal)).toEqual(['at', tokenText(proposal + 1), expect.any(Number)]);
    expect(await client.get(FENCE)).toBe(tokenText(proposal + 1));
  });
});
