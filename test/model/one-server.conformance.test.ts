import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LockKeys, ownerPart, tokenText } from '../../lib/stores/redis/node/lock-keys.js';
import { HEARD, queueEntry, UNHEARD } from '../../lib/stores/redis/scripts/hand-off.js';
import * as lua from '../../lib/stores/redis/scripts/lua.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { randomOf } from '../support/random.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { Call, mint, type Answer, type Lock, type Server, type Sign } from './server.js';

const SEQUENCES = 80;
const STEPS = 30;
const TTL_MS = 600_000;
/** A time that no clock shows, and no counter. */
const FUTURE = 8e15;
const FOREIGN = 'of another program';
const CHANNEL = 'a-process-that-listens';
const LISTENING = [CHANNEL];
/** Who asks for locks, and the channels of their processes. One owner begins like another, and two are of one process. */
const CHANNELS = { 'x/1': CHANNEL, 'x/10': CHANNEL, 'x/2': 'nobody-listens', 'x/3': 'nobody-listens-either' };
type Owner = keyof typeof CHANNELS;
const OWNERS = Object.keys(CHANNELS) as Owner[];
/** For how many turns their places are. */
const TURNS: Record<Owner, number> = { 'x/1': 1, 'x/10': 3, 'x/2': 2, 'x/3': 1 };
const SIGNS = [HEARD, UNHEARD];
/** For how long a process is silent that has had an accident, in microseconds. */
const SILENCE_US = 3_000_000;

/** One lock of a call. */
interface Request {
  key: string;
  owner: Owner;
  count: number;
  takesPlace: boolean;
  /** Who gives the lock back, or nobody. */
  give: Owner | '';
}

/** What all locks of a call share. */
interface Shared {
  sign: Sign;
}

interface Comparison {
  script: Script;
  /** Arguments that all locks of a call share. */
  shared?(shared: Shared): string[];
  args(request: Request): (string | number)[];
  /** Does in the model what the script does. */
  model(call: Call, request: Request, locks: number, shared: Shared): Answer;
}

const names = new LockKeys('lock');
const entryOf = (owner: Owner) => queueEntry('grant', CHANNELS[owner], owner, TURNS[owner]);

const COMPARISONS: Comparison[] = [
  {
    script: lua.ACQUIRE,
    shared: () => [String(TTL_MS)],
    args: ({ owner }) => [ownerPart(owner)],
    model: (call, { key, owner }, locks) => call.acquire(key, owner, locks),
  },
  {
    script: lua.TURN,
    shared: ({ sign }) => [sign],
    args: ({ give, owner, count, takesPlace }) => {
      return [give && ownerPart(give), ownerPart(owner), TTL_MS, count, takesPlace ? entryOf(owner) : '', '', 0, 1];
    },
    model: (call, { key, give, owner, count, takesPlace }, _locks, { sign }) => {
      const place = takesPlace ? { ticket: owner, channel: CHANNELS[owner], turns: TURNS[owner] } : undefined;
      return call.turn(key, give, owner, count, place, sign);
    },
  },
  {
    script: lua.RELEASE,
    args: ({ owner }) => [ownerPart(owner)],
    model: (call, { key, owner }) => call.release(key, owner),
  },
  {
    script: lua.TRANSFER,
    args: ({ give, owner, takesPlace }) => [
      ownerPart(give || 'nobody'),
      ownerPart(owner),
      TTL_MS,
      takesPlace ? 1 : 0,
      0,
    ],
    model: (call, { key, give, owner, takesPlace }) => call.transfer(key, give || 'nobody', owner, takesPlace),
  },
  {
    script: lua.WITHDRAW,
    args: ({ owner }) => [ownerPart(owner), entryOf(owner)],
    model: (call, { key, owner }) => call.withdraw(key, owner),
  },
  {
    script: lua.FORCE_RELEASE,
    shared: () => [names.inbox()],
    args: ({ key }) => [key, ''],
    model: (call, { key }) => call.forceRelease(key),
  },
];

let server: RedisServer;
let listener: Redis;
let heard: string[] = [];
beforeAll(async () => {
  server = await RedisServer.start();
  listener = new Redis(server.url);
  // A pattern hears all these channels, and does not count as listening to any.
  // The bound is not modelled: it is the time where nobody else waits.
  listener.on('pmessage', (_pattern, _channel, message: string) => {
    const [ticket, first, last, bound] = message.split(' ');
    heard.push(/^\d+$/.test(bound ?? '') && /^\d{16}$/.test(first ?? '') ? [ticket, first, last].join(' ') : message);
  });
  await listener.psubscribe('*listens*');
  await listener.subscribe(...LISTENING);
});
afterAll(async () => {
  listener.disconnect();
  await server.stop();
});

const timeUs = async (): Promise<number> => {
  const [seconds, microseconds] = ((await server.command('TIME')) as string[]).map(Number);
  return seconds! * 1_000_000 + microseconds!;
};

/** Runs a script on the server, for all these locks in one call. */
async function run({ script, shared, args }: Comparison, requests: Request[], ofCall: Shared): Promise<unknown[]> {
  const queues = [lua.ACQUIRE, lua.TRANSFER].includes(script) ? [] : [names.queue];
  const keys = requests.flatMap(({ key }) => [names.lock(key), ...queues.map((queue) => queue.call(names, key))]);
  const all = [names.fence(''), ...keys, ...(shared?.(ofCall) ?? []), ...requests.flatMap(args)];
  // No lease ends in the time of the test, which a busy machine makes long.
  const source = script.source.replace(/(GRANT_TTL_MS = )'\d+'/, `$1'${TTL_MS}'`);
  const reply = await server.command('EVAL', source, keys.length + 1, ...all);
  return requests.length === 1 ? [reply] : (reply as unknown[]);
}

/**
 * Runs it in the model, which stays as it is.
 * @param us the time by which it mints
 * @param at the time of the signs that it gives, nearly
 */
function runModel(comparison: Comparison, requests: Request[], shared: Shared, known: Server, us: number, at: number) {
  const after = structuredClone(known);
  const call = new Call(after, us, mint, at);
  const answers = requests.map((request) => comparison.model(call, request, requests.length, shared));
  return { after, answers: answers.map(toComparable), messages: call.messages };
}

/** Something else happens to the locks, on the server and in the model. */
async function disturb(known: Server, drawn: number, key: string): Promise<Server> {
  const lock = names.lock(key);
  const setCounter = async (counter: number): Promise<Server> => {
    await server.command('SET', names.fence(key), tokenText(counter));
    return { ...known, counter };
  };
  switch (drawn) {
    case 0:
      await server.command('SET', lock, FOREIGN, 'PX', TTL_MS);
      return { ...known, locks: { ...known.locks, [key]: { owner: FOREIGN } } };
    case 1:
      await server.command('DEL', names.fence(key));
      return { ...known, counter: undefined };
    case 2:
      await server.command('SET', names.fence(key), 'no number');
      return { ...known, counter: undefined };
    case 3: // an old one
      return setCounter((await timeUs()) - 1_000_000);
    case 4: // ahead of the clock, which soon reaches it
      return setCounter((await timeUs()) + 1_000);
    case 5: // ahead of the clock for longer than the test lasts
      return setCounter((await timeUs()) + 3_600_000_000);
    case 6:
      return silence(known, key, CHANNEL);
    case 7:
      return silence(known, key, 'nobody-listens');
    default:
      await server.command('DEL', lock);
      return { ...known, locks: { ...known.locks, [key]: undefined } };
  }
}

/** A process has given its last sign in a queue so much earlier. */
async function silence(known: Server, key: string, channel: string): Promise<Server> {
  const signs = { ...known.signs[key]?.[channel] };
  for (const sign of SIGNS) {
    if (signs[sign] === undefined) continue;
    signs[sign] -= SILENCE_US;
    await server.command('ZINCRBY', names.queue(key), SILENCE_US, `${sign} ${channel}`);
  }
  return { ...known, signs: { ...known.signs, [key]: { ...known.signs[key], [channel]: signs } } };
}

/** What the server knows. */
async function read(keys: string[]) {
  const [fence, ...values] = (await server.command('MGET', names.fence(''), ...keys.map((key) => names.lock(key)))) as (
    string | null
  )[];
  const queues = keys.map((key) => server.command('ZRANGE', names.queue(key), 0, '+inf', 'BYSCORE'));
  const counter = Number(fence ?? NaN);
  return { counter: Number.isNaN(counter) ? undefined : counter, values, queues: await Promise.all(queues) };
}

/** The same for the model. */
function readModel({ counter, locks, queues }: Server, keys: string[]) {
  return {
    counter,
    values: keys.map((key) => (locks[key] ? valueOf(locks[key]) : null)),
    queues: keys.map((key) => (queues[key] ?? []).map(({ ticket }) => entryOf(ticket as Owner))),
  };
}

function valueOf({ owner, token, mayHaveQueue }: Lock): string {
  const value = token === undefined ? owner : ownerPart(owner) + tokenText(token);
  return mayHaveQueue ? `${value}+` : value;
}

function toComparable(answer: Answer): unknown {
  if (typeof answer === 'number') return answer;
  if ('takenFrom' in answer) return valueOf(answer.takenFrom);
  const { gave } = answer;
  const said =
    'granted' in answer ? [answer.granted, answer.last ?? answer.granted].map(tokenText) : [valueOf(answer.refused)];
  return gave === undefined ? said[0] : [gave, ...said];
}

/** How long a lock still stands, and the number of a place, are not modelled: what is left is the value of the lock. */
function withoutTtl(reply: unknown): unknown {
  if (!Array.isArray(reply)) return reply;
  const [isGranted, gave, , first, last] = reply as unknown[]; // of a turn
  if (reply.length < 6) return reply[1];
  return isGranted === 1 ? [gave, first, last] : [gave, last];
}

it('one server of the model gives the same answers, sends the same messages and keeps the same keys as Redis with the scripts, after any sequence of calls [G251]', async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const random = randomOf(seed);
  const pick = (count: number) => Math.floor(random() * count);
  for (let sequence = 0; sequence < SEQUENCES; sequence++) {
    const keys = [0, 1].map((key) => `conformance-${seed}-${sequence}-${key}`);
    let known: Server = {
      counter: (await read([])).counter,
      locks: {},
      queues: {},
      signs: {},
      listening: LISTENING,
    };
    let sent: string[] = [];
    const done: string[] = [];
    heard = [];
    for (let index = 0; index < STEPS; index++) {
      if (pick(5) === 0) known = await disturb(known, pick(10), keys[pick(2)]!);
      const comparison = COMPARISONS[pick(COMPARISONS.length)]!;
      const shared = { sign: SIGNS[pick(2)]! };
      const requests = Array.from({ length: 1 + pick(3) }, () => ({
        key: keys[pick(2)]!,
        owner: OWNERS[pick(OWNERS.length)]!,
        count: 1 + pick(3),
        takesPlace: pick(4) > 0,
        give: pick(2) === 0 ? ('' as const) : OWNERS[pick(OWNERS.length)]!,
      }));
      done.push(`${comparison.script.name} ${shared.sign} ${JSON.stringify(requests)}`);
      const before = await timeUs();
      const replies = await run(comparison, requests, shared);
      const after = await timeUs();
      const is = await read(keys);
      // The time that the script saw: if it decided, the counter is as far ahead of it as in a model that mints from it.
      const ahead = runModel(comparison, requests, shared, known, FUTURE, before).after.counter! - FUTURE;
      const us = Math.min(Math.max(is.counter! - ahead, before), after) || before;
      const model = runModel(comparison, requests, shared, known, us, before);
      expect({ seed, done, answers: replies.map(withoutTtl), ...is }).toEqual({
        seed,
        done,
        answers: model.answers,
        ...readModel(model.after, keys),
      });
      known = model.after;
      sent = [...sent, ...model.messages];
    }
    const last = `the end of ${sequence}`;
    await server.command('PUBLISH', CHANNEL, last);
    await until(() => heard.at(-1) === last, { what: 'all messages arrive' });
    expect({ seed, done, heard }).toEqual({ seed, done, heard: [...sent, last] });
  }
});
