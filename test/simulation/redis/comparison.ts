import { isDeepStrictEqual } from 'node:util';
import type { Redis } from 'ioredis';
import { expect } from 'vitest';
import { randomOf } from '../../support/random.js';
import { CHANNEL, FIRST_US, KEYS, randomStep, type Step } from './random-steps.js';
import { RedisData } from './redis-data.js';
import { RedisEngine } from './redis-engine.js';
import { ReplyError, Status, type Reply } from './replies.js';
import { SortedSet } from './sorted-set.js';

/** More of them: `DIFFERENTIAL_STEPS=100000 npm test -- test/simulation/redis`. */
export const STEPS = Number(process.env.DIFFERENTIAL_STEPS ?? 2_000);
const SEED = Number(process.env.DIFFERENTIAL_SEED ?? Math.floor(Math.random() * 2 ** 32));
const STEPS_OF_A_SEQUENCE = 25;
/** The last message of a sequence. */
const END = 'the end';
/**
 * The ttls of the steps, in milliseconds: the ttl of a grant that was handed over, and the longest of `randomStep`. No
 * other numbers in replies are similar.
 */
const [SHORTEST_TTL_MS, LONGEST_TTL_MS] = [2_000, 700_000];

/** Real servers, and the last of them again, for the client that listens to its channel. */
export interface RealServers {
  readonly servers: readonly Redis[];
  readonly listener: Redis;
  /** Until all of them have the state of the first one. */
  replicated(): Promise<void>;
}

/** Servers that run the same commands as real ones, from a state without keys. */
export class Comparison {
  readonly #heard = { real: [] as string[][], simulated: [] as string[][] };
  readonly #since = performance.now();
  /** The first one, and a replica that gets its effects at once. */
  readonly #engines: readonly RedisEngine[];
  #us = FIRST_US;

  private constructor(private readonly real: RealServers) {
    // Its own clock stands still: expired keys and remaining times are compared by the time that the real server took.
    const engine = () => new RedisEngine(new RedisData({ nowUs: () => FIRST_US, timeUs: () => this.#us }));
    this.#engines = real.servers.map(engine);
    const [primary, replica] = this.#engines;
    if (replica) {
      replica.data.isReplica = true;
      primary!.data.onEffect = (effect) => replica.data.applying(() => replica.execute(effect));
    }
    const push = ([kind, channel, message]: readonly (string | number)[]) => {
      if (kind === 'message') this.#heard.simulated.push([String(channel), String(message)]);
    };
    this.last.execute(['SUBSCRIBE', CHANNEL], { push });
  }

  static async begin(real: RealServers): Promise<Comparison> {
    for (const server of real.servers) await server.config('SET', 'maxmemory', '0');
    await real.servers[0]!.flushall();
    await real.replicated();
    return new Comparison(real);
  }

  /** The simulated server whose keys are compared. */
  get last(): RedisEngine {
    return this.#engines.at(-1)!;
  }

  /** Runs a step on the server of this number, and compares the results. */
  async run({ args }: Step, number = 0): Promise<void> {
    const expected = await onReal(this.real.servers[number]!, args, this.#us);
    await this.real.replicated();
    const got = shown(this.#engines[number]!.execute(args.map(bytesOf)));
    // How much less of a ttl may remain on the server, whose clock does not stand still.
    const elapsedMs = () => performance.now() - this.#since + 2;
    expectSame('the reply', got, asShown(expected, got, elapsedMs()));
    const inKeys = shown(statesOfSimulated(this.last));
    expectSame(KEYS.join(', '), inKeys, asShown(await statesOfReal(this.real.servers.at(-1)!), inKeys, elapsedMs()));
  }

  /** @returns whether that was done before anything expired */
  async runSequence(seed: number): Promise<boolean> {
    const random = randomOf(seed);
    const { listener, servers } = this.real;
    const ended = new Promise<void>((resolve) => {
      listener.removeAllListeners('messageBuffer').on('messageBuffer', (channel: Buffer, message: Buffer) => {
        if (latin(message) === END) resolve();
        else this.#heard.real.push([latin(channel), latin(message)]);
      });
    });
    const trail: string[] = [];
    for (let count = 0; count < STEPS_OF_A_SEQUENCE; count++) {
      this.#us += [0, 1, 1_000, 2_500_000][Math.floor(random() * 4)]!;
      const step = randomStep(random, this.#us);
      if (step.args[0] === 'DEBUG' && servers.length > 1) continue; // it changes only one of them
      const number = random() < 0.8 ? 0 : servers.length - 1;
      trail.push(`on server ${number}: ${step.title}`);
      try {
        await this.run(step, number);
      } catch (error) {
        if (this.#isTooLate) return false;
        throw new Error(
          `The simulated Redis differs (DIFFERENTIAL_SEED=${seed}), after:\n${trail.slice(-4).join('\n')}\n` +
            String((error as Error).message),
          { cause: error },
        );
      }
    }
    // Messages come on a separate connection, in order.
    await servers[0]!.publish(CHANNEL, END);
    await ended;
    if (this.#isTooLate) return false;
    expectSame('what was heard', this.#heard.simulated, this.#heard.real);
    return true;
  }

  get #isTooLate(): boolean {
    return performance.now() - this.#since >= SHORTEST_TTL_MS;
  }
}

/** Compares this many random steps, in sequences that begin without keys. */
export async function compareRandomSteps(real: RealServers, steps: number): Promise<void> {
  for (let done = 0; done < steps; done += STEPS_OF_A_SEQUENCE) {
    // If the machine was busy for so long that keys expired on the real server, nothing can be compared.
    while (!(await (await Comparison.begin(real)).runSequence(SEED + done)));
  }
}

function expectSame(of: string, simulated: unknown, expected: unknown): void {
  if (!isDeepStrictEqual(simulated, expected)) expect(simulated, of).toEqual(expected); // it takes far longer
}

/** A script sees the time of the simulation; none of its lines has another number. */
async function onReal(real: Redis, args: readonly string[], us: number): Promise<unknown> {
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
  if type == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES') end
  states[at] = { type, redis.call('PTTL', key), value }
end
return states`;

/** The contents of all keys of the steps on a real server. */
function statesOfReal(real: Redis): Promise<unknown> {
  return real.callBuffer('EVAL', STATES, String(KEYS.length), ...KEYS) as Promise<unknown>;
}

/** Their contents on a simulated server. */
function statesOfSimulated(engine: RedisEngine): Reply {
  return KEYS.map((key) => stateOf(engine, bytesOf(key)));
}

function stateOf(engine: RedisEngine, key: string): Reply {
  const entry = engine.data.entry(key);
  const ask = (...args: string[]) => engine.execute(args) as Reply;
  const value =
    entry?.value instanceof SortedSet ? ask('ZRANGE', key, '0', '-1', 'WITHSCORES') : (entry?.value ?? null);
  return [(ask('TYPE', key) as Status).text, ask('PTTL', key), value];
}

/** A reply in a comparable form, without what Redis does not promise, and without line numbers and hashes. */
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
  // Valkey 9.1 does not name the script.
  return { error: message.replace(/ script: ([\da-f]+, )?on @user_script:\d+\.?$/, '').replace(/, with args .*/s, '') };
}

/**
 * @returns the reply of the real server, with the remaining times of the other if they differ by no more than has
 * passed
 */
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
