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
import { CHANNEL, FIRST_US, KEYS, randomStep } from './random-steps.js';
import { RedisData } from './redis-data.js';
import { RedisEngine } from './redis-engine.js';

/** A quarter of the steps of a server alone. */
const STEPS = Number(process.env.DIFFERENTIAL_STEPS ?? 2_000) / 4;
const SEED = Number(process.env.DIFFERENTIAL_SEED ?? Math.floor(Math.random() * 2 ** 32));
const STEPS_OF_A_SEQUENCE = 25;
/** The last message of a sequence. */
const END = 'the end';

/** A primary and its replica, and what was published on the replica. */
interface Pair<Server> {
  readonly primary: Server;
  readonly replica: Server;
  heard: [channel: string, message: string][];
}

let servers: RedisServer[];
let real: Pair<Redis>;
let listener: Redis;
/** Called when the last message of a sequence was heard. */
let onEnd = () => {};

beforeAll(async () => {
  servers = [await RedisServer.start()];
  servers.push(await RedisServer.start({ args: ['--replicaof', '127.0.0.1', String(servers[0]!.port)] }));
  const [primary, replica] = servers.map(({ port }) => new Redis(port, '127.0.0.1', { protocol: 2 }));
  real = { primary: primary!, replica: replica!, heard: [] };
  listener = replica!.duplicate();
  listener.on('messageBuffer', (channel: Buffer, message: Buffer) => {
    if (latin(message) === END) onEnd();
    else real.heard.push([latin(channel), latin(message)]);
  });
  await listener.subscribe(CHANNEL);
  await replicated();
});
afterAll(async () => {
  for (const client of [real.primary, real.replica, listener]) client.disconnect();
  await Promise.all(servers.map((server) => server.stop()));
});

describe('a simulated replica', () => {
  it(
    `has the same in its keys as a real one after each of ${STEPS} random commands and scripts on its primary, hears the same, and refuses the same`,
    { timeout: 20_000 + 20 * STEPS },
    async () => {
      for (let done = 0; done < STEPS; done += STEPS_OF_A_SEQUENCE) {
        // Where the machine was busy for so long that keys expired on the real servers, nothing can be compared.
        while (!(await compareSequence(SEED + done)));
      }
    },
  );
});

interface SimulatedPair extends Pair<RedisEngine> {
  us: number;
}

/** The effects of the primary reach the replica at once. */
function simulatedPair(): SimulatedPair {
  const engine = () => new RedisEngine(new RedisData({ nowUs: () => FIRST_US, timeUs: () => pair.us }));
  const pair: SimulatedPair = { primary: engine(), replica: engine(), heard: [], us: FIRST_US };
  const { primary, replica } = pair;
  replica.data.isReplica = true;
  primary.data.onEffect = (effect) => replica.data.applying(() => replica.execute(effect));
  const push = ([kind, channel, message]: readonly (string | number)[]) => {
    if (kind === 'message') pair.heard.push([String(channel), String(message)]);
  };
  replica.execute(['SUBSCRIBE', CHANNEL], { push });
  return pair;
}

/** @returns whether that was done before anything has expired */
async function compareSequence(seed: number): Promise<boolean> {
  const random = randomOf(seed);
  for (const server of [real.primary, real.replica]) await server.config('SET', 'maxmemory', '0');
  await real.primary.flushall();
  await replicated();
  real.heard = [];
  const simulated = simulatedPair();
  const since = performance.now();
  const isTooLate = () => performance.now() - since >= SHORTEST_TTL_MS;
  const trail: string[] = [];
  for (let step = 0; step < STEPS_OF_A_SEQUENCE; step++) {
    simulated.us += [0, 1, 1_000, 2_500_000][Math.floor(random() * 4)]!;
    const { title, args } = randomStep(random, simulated.us);
    if (args[0] === 'DEBUG') continue; // which changes only one of them
    const server = random() < 0.8 ? 'primary' : 'replica';
    trail.push(`${server}: ${title}`);
    try {
      const expected = await onReal(real[server], args, simulated.us);
      await replicated();
      const got = shown(simulated[server].execute(args.map(bytesOf)));
      const elapsedMs = () => performance.now() - since + 2;
      expectSame('the reply', got, asShown(expected, got, elapsedMs()));
      const inKeys = shown(statesOfSimulated(simulated.replica));
      expectSame(KEYS.join(', '), inKeys, asShown(await statesOfReal(real.replica), inKeys, elapsedMs()));
    } catch (error) {
      if (isTooLate()) return false;
      throw new Error(
        `The simulated replica differs (DIFFERENTIAL_SEED=${seed}), after:\n${trail.slice(-4).join('\n')}\n` +
          String((error as Error).message),
        { cause: error },
      );
    }
  }
  const ended = new Promise<void>((resolve) => (onEnd = resolve));
  await real.primary.publish(CHANNEL, END);
  await ended;
  if (isTooLate()) return false;
  expect(real.heard).toEqual(simulated.heard);
  return true;
}

/** The real replica has all changes. */
async function replicated(): Promise<void> {
  expect(await real.primary.wait(1, 10_000)).toBe(1);
}
