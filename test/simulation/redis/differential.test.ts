import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { randomOf } from '../../support/random.js';
import { RedisServer } from '../../support/redis-server.js';
import {
  asShown,
  bytesOf,
  expectSame,
  latin,
  onReal,
  SHORTEST_TTL_MS,
  shown,
  statesOfReal,
  statesOfSimulated,
} from './comparison.js';
import { CHANNEL, FIRST_US, KEYS, randomStep, type Step } from './random-steps.js';
import { RedisData } from './redis-data.js';
import { RedisEngine } from './redis-engine.js';

/** More of them: `DIFFERENTIAL_STEPS=100000 npm test -- test/simulation/redis`. */
const STEPS = Number(process.env.DIFFERENTIAL_STEPS ?? 2_000);
const SEED = Number(process.env.DIFFERENTIAL_SEED ?? Math.floor(Math.random() * 2 ** 32));
const STEPS_OF_A_SEQUENCE = 25;
/** The last message of a sequence. */
const END = 'the end';
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
    `answers ${STEPS} random commands and scripts as a real one does, and has the same in its keys after each [G251]`,
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
  const expected = await onReal(real, args, us);
  const got = simulated.engine.execute(args.map(bytesOf));
  // How much less may be left of a ttl on the server, whose clock does not stand still.
  const elapsedMs = () => performance.now() - simulated.since + 2;
  expectSame('the reply', shown(got), asShown(expected, shown(got), elapsedMs()));
  const inKeys = shown(statesOfSimulated(simulated.engine));
  expectSame(KEYS.join(', '), inKeys, asShown(await statesOfReal(real), inKeys, elapsedMs()));
}
