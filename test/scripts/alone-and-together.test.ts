import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import {
  ACQUIRE,
  CONTEND,
  EXTEND,
  FORCE_RELEASE,
  INSPECT,
  RAISE_FENCE,
  RELEASE,
  RESTORE,
  VOTE,
  VOTE_OR_QUEUE,
  WITHDRAW,
} from '../../lib/stores/redis/scripts/lua.js';
import * as LUA from '../../lib/stores/redis/scripts/lua.js';
import { ScriptRunner, type Reply } from '../../lib/stores/redis/scripts/script-runner.js';
import { GRANT_TTL_MS, queueEntry, readMessage } from '../../lib/stores/redis/scripts/hand-off.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { ScriptFault } from '../../lib/stores/redis/scripts/script-fault.js';
import { portOf } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';
import { until } from '../support/until.js';

const TTL_MS = 30_000;
const CHANNEL = 'inbox:alive';
/** Ahead of the clock of any server until the year 2223. */
const AHEAD = 8e15;
const GUARD = 'lock:admission';

/** The keys of one lock. */
interface Keys {
  lock: string;
  fence: string;
  queue: string;
}
const keysOf = (name: string): Keys => ({
  lock: `lock:{${name}}`,
  fence: `lock:{${name}}:fence`,
  queue: `lock:{${name}}:queue`,
});

let server: RedisServer;
let client: Redis;
let listener: Redis;
let runner: ScriptRunner;
const heard: string[] = [];

beforeAll(async () => {
  server = await RedisServer.start();
  [client, listener] = [new Redis(server.url), new Redis(server.url)];
  await client.ping();
  runner = new ScriptRunner(portOf(client), 5_000);
  listener.on('message', (_channel, text) => void heard.push(text));
  await listener.subscribe(CHANNEL);
});
afterAll(async () => {
  client.disconnect();
  listener.disconnect();
  await server.stop();
});

// What a lock may be like before.
type Prepare = (keys: Keys) => Promise<unknown>;
const free: Prepare = () => Promise.resolve();
const held =
  (owner: string, ttlMs = TTL_MS): Prepare =>
  ({ lock }) =>
    client.set(lock, owner, 'PX', ttlMs);
const waitedFor =
  (...entries: string[]): Prepare =>
  ({ queue }) =>
    client.zadd(queue, ...entries.flatMap((entry, index) => [index + 1, entry]));
const counter =
  (value: string | number): Prepare =>
  ({ fence }) =>
    client.set(fence, value);
const both =
  (...steps: Prepare[]): Prepare =>
  async (keys) => {
    for (const step of steps) await step(keys);
  };
const noString: Prepare = ({ lock }) => client.rpush(lock, 'a', 'list');

const entry = (ticket: string) => queueEntry('grant', CHANNEL, ticket);
const nobody = queueEntry('grant', 'inbox:nobody', 'dead');
const blind = queueEntry('blind-grant', 'inbox:elsewhere', 'blind');
const wake = queueEntry('wake', CHANNEL, 'woken');

interface Operation {
  script: Script;
  /** Of the lock's keys, those that the script takes. */
  of: (keys: Keys) => string[];
  args: (string | number)[];
}
const lockOnly = ({ lock }: Keys) => [lock];
const withFence = ({ lock, fence }: Keys) => [lock, fence];
const withQueue = ({ lock, fence, queue }: Keys) => [lock, fence, queue];
const acquire: Operation = { script: ACQUIRE, of: withFence, args: ['me', TTL_MS] };
/** Let vote since `AHEAD`, where there is an epoch. */
const vote = (epoch = ''): Operation => ({
  script: VOTE,
  of: (keys) => [...withFence(keys), GUARD],
  args: ['me', TTL_MS, epoch, epoch && AHEAD],
});
const contend = (
  ticket: string,
  { fair = 0, place = entry(ticket), number = '' as number | '', tokens = 1 } = {},
): Operation => ({
  script: CONTEND,
  of: withQueue,
  args: [ticket, TTL_MS, tokens, place, number, fair],
});
const voteOrQueue = (place: string, epoch = ''): Operation => ({
  script: VOTE_OR_QUEUE,
  of: (keys) => [...withQueue(keys), GUARD],
  args: ['me', TTL_MS, 1, place, '', 0, epoch, epoch && AHEAD],
});
const extend: Operation = { script: EXTEND, of: lockOnly, args: ['me', TTL_MS] };
const restore: Operation = { script: RESTORE, of: lockOnly, args: ['me', TTL_MS] };
const raise: Operation = { script: RAISE_FENCE, of: withFence, args: ['me', AHEAD] };
const inspect: Operation = { script: INSPECT, of: withFence, args: [] };
const release: Operation = { script: RELEASE, of: withQueue, args: ['me'] };
const forceRelease: Operation = { script: FORCE_RELEASE, of: withQueue, args: ['k', 'inbox:'] };
const withdraw: Operation = { script: WITHDRAW, of: withQueue, args: ['me', entry('me')] };

const CASES: [what: string, operation: Operation, before: Prepare][] = [
  ['acquire: a free lock', acquire, free],
  ['acquire: its own lock', acquire, held('me')],
  ['acquire: a lock that is held', acquire, held('other')],
  ['acquire: a lock that is no string', acquire, noString],
  ['acquire: a counter that is ahead of the clock', acquire, counter(AHEAD)],
  ['acquire: a counter that is a word', acquire, counter('word')],
  ['vote: a free lock', vote(), free],
  ['vote: a lock that is held', vote(), held('other')],
  ['vote: a node that has lost its data', vote('epoch'), free],
  ['vote: a counter that is ahead of the clock', vote('epoch'), counter(AHEAD)],
  ['vote: a counter that is a word', vote(), counter('word')],
  ['contend: a free lock', contend('me'), free],
  ['contend: many tokens', contend('me', { tokens: 64 }), counter(AHEAD)],
  ['contend: a place behind others', contend('me'), both(held('other'), waitedFor(entry('first')))],
  ['contend: a place of its own', contend('me', { number: 1 }), both(held('other'), waitedFor(entry('me')))],
  ['contend: a place that it has lost', contend('me', { number: 0.5 }), both(held('other'), waitedFor(entry('first')))],
  ['contend: without a place', contend('me', { place: '' }), held('other')],
  ['contend: what was granted to it', contend('me'), both(held('me', GRANT_TTL_MS), waitedFor(entry('me')))],
  ['contend: a lock that is no string', contend('me'), noString],
  ['contend: fair, first in the queue', contend('me', { fair: 1 }), waitedFor(entry('me'), entry('next'))],
  ['contend: fair, somebody is first', contend('me', { fair: 1 }), waitedFor(entry('first'), entry('next'))],
  ['contend: fair, nobody hears of it', contend('me', { fair: 1 }), waitedFor(nobody, nobody)],
  ['contend: fair, without a place', contend('me', { fair: 1, place: '' }), waitedFor(entry('first'))],
  ['contend: fair, a lock that is held', contend('me', { fair: 1 }), both(held('other'), waitedFor(entry('first')))],
  ['vote or queue: a free lock', voteOrQueue(wake), free],
  ['vote or queue: a place', voteOrQueue(wake), held('other')],
  ['vote or queue: no place', voteOrQueue(''), held('other')],
  ['vote or queue: a lock that is no string', voteOrQueue(wake), noString],
  ['vote or queue: a node that has lost its data', voteOrQueue(wake, 'epoch'), free],
  ['vote or queue: a counter that is a word', voteOrQueue(wake), counter('word')],
  ['extend: its own lock', extend, held('me', GRANT_TTL_MS)],
  ['extend: a free lock', extend, free],
  ['extend: a lock of another', extend, held('other')],
  ['extend: a lock that is no string', extend, noString],
  ['restore: its own lock', restore, held('me', GRANT_TTL_MS)],
  ['restore: a free lock', restore, free],
  ['restore: a lock of another', restore, held('other')],
  ['raise the fence: its own lock', raise, held('me')],
  ['raise the fence: a counter above', raise, both(held('me'), counter(AHEAD + 1))],
  ['raise the fence: a lock of another', raise, held('other')],
  ['raise the fence: a counter that is a word', raise, both(held('me'), counter('word'))],
  ['inspect: a lock that is held', inspect, both(held('other'), counter(AHEAD))],
  ['inspect: a free lock', inspect, free],
  ['release: its own lock', release, held('me')],
  ['release: to the next', release, both(held('me'), waitedFor(nobody, entry('first'), entry('second')))],
  ['release: with a counter that is ahead', release, both(held('me'), counter(AHEAD), waitedFor(entry('first')))],
  ['release: with a counter that is a word', release, both(held('me'), counter('word'), waitedFor(entry('first')))],
  ['release: to one who is not heard of here', release, both(held('me'), waitedFor(blind, entry('second')))],
  ['release: wakes one', release, both(held('me'), waitedFor(wake, entry('second')))],
  ['release: a queue by hand', release, both(held('me'), waitedFor('by hand'))],
  ['release: nobody hears of it', release, both(held('me'), waitedFor(nobody))],
  ['release: a lock of another', release, both(held('other'), waitedFor(entry('first')))],
  ['release: a free lock', release, free],
  ['release: a lock that is no string', release, noString],
  ['force release: a lock that is held', forceRelease, held('other')],
  ['force release: to the next', forceRelease, both(held('other'), waitedFor(nobody, entry('first')))],
  ['force release: of a process that listens', forceRelease, held('alive/1')],
  ['force release: a lock that is no string', forceRelease, noString],
  ['force release: a free lock', forceRelease, waitedFor(entry('first'))],
  ['withdraw: from the queue', withdraw, both(held('other'), waitedFor(entry('me'), entry('next')))],
  ['withdraw: what was granted to it', withdraw, both(held('me'), waitedFor(entry('next')))],
  ['withdraw: the last in the queue', withdraw, both(held('me'), waitedFor(nobody))],
  ['withdraw: a lock that is no string', withdraw, noString],
];

/** Numbers that differ from run to run, by what they are. */
function told(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(told);
  if (value instanceof ScriptFault) return value.message;
  const number = Number(value);
  if (value === '' || !Number.isFinite(number)) return value;
  if (number > 1e15) return number > AHEAD / 2 ? `ahead by ${number - AHEAD}` : 'by the clock';
  return number > 100 ? `${Math.ceil(number / 5_000) * 5} s` : number;
}

/** What is left of a lock. */
async function stateOf({ lock, fence, queue }: Keys): Promise<unknown> {
  const read = async (key: string) => {
    const type = await client.type(key);
    const value =
      type === 'string'
        ? await client.get(key)
        : type === 'zset'
          ? await client.zrange(key, '0', '-1', 'WITHSCORES')
          : type === 'list' && (await client.lrange(key, 0, -1));
    return [type, told(value), told(await client.pttl(key))];
  };
  return { lock: await read(lock), fence: await read(fence), queue: await read(queue) };
}

async function outcome(
  operation: Operation,
  before: Prepare,
  names: string[],
  ask: (run: () => Promise<Reply>[]) => Promise<Reply>[],
) {
  await client.flushall();
  const locks = names.map(keysOf);
  for (const keys of locks) await before(keys);
  heard.length = 0;
  const { script, of, args } = operation;
  const replies = await Promise.allSettled(ask(() => locks.map((keys) => runScript(runner, script, of(keys), args))));
  await client.publish(CHANNEL, 'last');
  await until(() => heard.includes('last'), { what: 'all messages are heard' });
  const messages = heard.filter((text) => text !== 'last').map((text) => readMessage(text));
  return {
    replies: replies.map((reply) => told(reply.status === 'fulfilled' ? reply.value : reply.reason)),
    states: await Promise.all(locks.map(stateOf)),
    messages: messages.map(({ ticket, fencingToken }) => [ticket, told(fencingToken ?? '')]),
  };
}

describe('A script does for each of many locks what it does for one alone', () => {
  it.each(CASES)('%s', async (_what, operation, before) => {
    const alone = await outcome(operation, before, ['one'], (run) => run());
    await client.config('RESETSTAT');
    const many = await outcome(operation, before, ['a', 'b', 'c'], (run) => together(runner, run));
    expect((await server.calls()).evalsha).toBe(2); // with the one that keeps the server at work
    const thrice = <T>([one]: T[]) => [one, one, one];
    expect(many.replies).toEqual(thrice(alone.replies));
    expect(many.states).toEqual(thrice(alone.states));
    expect(many.messages).toEqual([...alone.messages, ...alone.messages, ...alone.messages]);
  });

  it('and these are all the scripts that are asked for locks', () => {
    const every = Object.values<Script>(LUA).filter(({ name }) => name !== 'admit');
    expect(every.length).toBeGreaterThan(9);
    expect(new Set(CASES.map(([, { script }]) => script.name))).toEqual(new Set(every.map(({ name }) => name)));
  });
});
