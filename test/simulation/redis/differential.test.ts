import { isDeepStrictEqual } from 'node:util';
import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { randomOf } from '../../support/random.js';
import { RedisServer } from '../../support/redis-server.js';
import { CHANNEL, FIRST_US, KEYS, randomStep, type Step } from './random-steps.js';
import { RedisData } from './redis-data.js';
import { RedisEngine } from './redis-engine.js';
import { ReplyError, Status, type Reply } from './replies.js';
import { SortedSet } from './sorted-set.js';

/** More of them: `DIFFERENTIAL_STEPS=100000 npm test -- test/simulation/redis`. */
const STEPS = Number(process.env.DIFFERENTIAL_STEPS ?? 2_000);
const SEED = Number(process.env.DIFFERENTIAL_SEED ?? Math.floor(Math.random() * 2 ** 32));
const STEPS_OF_A_SEQUENCE = 25;
/** The last message of a sequence. */
const END = 'the end';
/** The ttls of the steps, in milliseconds: that of a grant that was handed over, and the longest of `randomStep`. No other numbers of replies are like them. */
const [SHORTEST_TTL_MS, LONGEST_TTL_MS] = [2_000, 700_000];

let server: RedisServer;
let real: Redis;
let listener: Redis;
let heard: [channel: string, message: string][];
/** Called when the last message of a sequence was heard. */
let onEnd = () => {};

beforeAll(async () => {
  server = await RedisServer.start();
  const client = () => new Redis(server.port, '127.0.0.1', { protocol: 2 });
  [real, listener] = [client(), client()];
  listener.on('messageBuffer', (channel: Buffer, message: Buffer) => {
    if (latin(message) === END) onEnd();
    else heard.push([latin(channel), latin(message)]);
  });
  await listener.subscribe(CHANNEL);
});
afterAll(async () => {
  for (const client of [real, listener]) client.disconnect();
  await server.stop();
});

describe('the simulated Redis', () => {
  it(
    `answers ${STEPS} random commands and scripts as a real one does, and has the same in its keys after each`,
    { timeout: 20_000 + 10 * STEPS },
    async () => {
      for (let done = 0; done < STEPS; done += STEPS_OF_A_SEQUENCE) {
        // Where the machine was busy for so long that keys expired on the real server, nothing can be compared.
        while (!(await compareSequence(SEED + done)));
      }
    },
  );

  it('fails on a difference that a step makes', async () => {
    const { simulated } = await fresh();
    simulated.engine.data.change('lock:{a}', { value: 'one that the real server does not have' });
    await expect(compare(simulated, { title: 'GET', args: ['GET', 'lock:{a}'] }, FIRST_US)).rejects.toThrow();
  });
});

interface Simulated {
  readonly engine: RedisEngine;
  readonly heard: [channel: string, message: string][];
  readonly since: number;
  us: number;
}

/** Both servers without keys. */
async function fresh(): Promise<{ simulated: Simulated }> {
  await real.config('SET', 'maxmemory', '0');
  await real.flushall();
  heard = [];
  // Its own clock stands still: whatever has expired, or is left of a ttl, is compared by the time that the real server took.
  const simulated: Simulated = {
    engine: new RedisEngine(new RedisData({ nowUs: () => FIRST_US, timeUs: () => simulated.us })),
    heard: [],
    since: performance.now(),
    us: FIRST_US,
  };
  const push = ([kind, channel, message]: readonly (string | number)[]) => {
    if (kind === 'message') simulated.heard.push([String(channel), String(message)]);
  };
  simulated.engine.execute(['SUBSCRIBE', CHANNEL], { push });
  return { simulated };
}

/** @returns whether that was done before anything has expired */
async function compareSequence(seed: number): Promise<boolean> {
  const random = randomOf(seed);
  const { simulated } = await fresh();
  const trail: string[] = [];
  for (let step = 0; step < STEPS_OF_A_SEQUENCE; step++) {
    simulated.us += [0, 1, 1_000, 2_500_000][Math.floor(random() * 4)]!;
    const next = randomStep(random, simulated.us);
    trail.push(next.title);
    try {
      await compare(simulated, next, simulated.us);
    } catch (error) {
      if (isTooLate(simulated)) return false;
      throw new Error(
        `The simulated Redis differs (DIFFERENTIAL_SEED=${seed}), after:\n${trail.slice(-4).join('\n')}\n` +
          String((error as Error).message),
        { cause: error },
      );
    }
  }
  // Messages come on a connection of their own, in order.
  const ended = new Promise<void>((resolve) => (onEnd = resolve));
  await real.publish(CHANNEL, END);
  await ended;
  if (isTooLate(simulated)) return false;
  expect(heard).toEqual(simulated.heard);
  return true;
}

function isTooLate({ since }: Simulated): boolean {
  return performance.now() - since >= SHORTEST_TTL_MS;
}

async function compare(simulated: Simulated, { args }: Step, us: number): Promise<void> {
  const expected = await onReal(args, us);
  const got = simulated.engine.execute(args.map(bytesOf));
  // How much less may be left of a ttl on the server, whose clock does not stand still.
  const elapsedMs = () => performance.now() - simulated.since + 2;
  expectSame('the reply', shown(got), asShown(expected, shown(got), elapsedMs()));
  const inKeys = shown(KEYS.map((key) => stateOf(simulated.engine, bytesOf(key))));
  expectSame(KEYS.join(', '), inKeys, asShown(await statesOfReal(), inKeys, elapsedMs()));
}

function expectSame(of: string, simulated: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(simulated, expected)) expect(simulated, of).toEqual(expected); // which takes far longer
}

/** A script sees the time of the simulation; no line of it has another number. */
async function onReal(args: readonly string[], us: number): Promise<unknown> {
  const [name, ...rest] = args;
  const [seconds, micros] = [Math.floor(us / 1e6), us % 1e6];
  const withTime = `local real = redis local redis = { pcall = real.pcall, call = function(name, ...) if name == 'TIME' then return {'${seconds}', '${micros}'} end return real.call(name, ...) end } `;
  if (name === 'EVAL' && rest.length > 1) rest[0] = withTime + rest[0];
  return (real.callBuffer(name!, ...rest) as Promise<unknown>).catch((error: Error) => error);
}

const STATES = `local states = {}
for at, key in ipairs(KEYS) do
  local type = redis.call('TYPE', key).ok
  local value = false
  if type == 'string' then value = redis.call('GET', key) end
  if type == 'list' then value = redis.call('LRANGE', key, 0, -1) end
  if type == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  states[at] = { type, redis.call('PTTL', key), value }
end
return states`;

function statesOfReal(): Promise<unknown> {
  return real.callBuffer('EVAL', STATES, String(KEYS.length), ...KEYS) as Promise<unknown>;
}

function stateOf(engine: RedisEngine, key: string): Reply {
  const entry = engine.data.entry(key);
  const ask = (...args: string[]) => engine.execute(args) as Reply;
  const value =
    entry?.value instanceof SortedSet ? ask('ZRANGE', key, '0', '-1', 'WITHSCORES') : (entry?.value ?? null);
  return [(ask('TYPE', key) as Status).text, ask('PTTL', key), value];
}

/** A reply in a form that can be compared: what is no promise of Redis, or names a line or a hash, is left out. */
function shown(reply: unknown): unknown {
  if (Buffer.isBuffer(reply)) return latin(reply);
  if (reply instanceof Status) return reply.text;
  if (reply instanceof ReplyError) return errorShown(reply.text);
  if (reply instanceof Error) return errorShown(reply.message);
  if (!Array.isArray(reply)) return reply;
  const list = reply.map(shown);
  if (list[0] === 'used') return ['used']; // any key
  if (list.length === 2 && list[0] === '0' && Array.isArray(list[1])) return ['0', [...list[1]].sort()]; // of SCAN, in any order
  return list;
}

function errorShown(message: string): { error: string } {
  if (message.includes('user_script:') && message.startsWith('ERR user_script')) return { error: 'of Lua' };
  return { error: message.replace(/ script: [\da-f]+, on @user_script:\d+\.?$/, '').replace(/, with args .*/s, '') };
}

/** @returns the reply of the real server; with the remaining times of the other where they differ by no more than has passed */
function asShown(real: unknown, simulated: unknown, elapsedMs: number): unknown {
  const reply = shown(real);
  if (Array.isArray(reply) && Array.isArray(simulated))
    return reply.map((each, at) => asShown(each, simulated[at], elapsedMs));
  if (typeof reply !== 'number' || typeof simulated !== 'number') return reply;
  const isLeft = simulated >= SHORTEST_TTL_MS && simulated <= LONGEST_TTL_MS;
  return isLeft && reply <= simulated && simulated - reply <= elapsedMs ? simulated : reply;
}

const latin = (bytes: Buffer) => bytes.toString('latin1');
const bytesOf = (text: string) => Buffer.from(text, 'utf8').toString('latin1');
