import type { Claim } from '../support/claims.js';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { Vote } from '../../lib/stores/redis/node/node-answers.js';
import { RedisConnection } from '../../lib/stores/redis/client/redis-connection.js';
import { RedisNode } from '../../lib/stores/redis/node/redis-node.js';
import { randomOf } from '../support/random.js';
import { RedisServer } from '../support/redis-server.js';
import { SCRIPTS, type KeyOnNode } from './node.js';

const SEQUENCES = 40;
const STEPS = 30;
const EPOCH = '1000000000000000';
const OWNERS = ['a', 'b', 'c'];

let server: RedisServer;
let node: RedisNode;
beforeAll(async () => {
  server = await RedisServer.start();
  await server.command('SET', 'lock:admission', `${EPOCH} 20 model`);
  const connection = await RedisConnection.open(server.url);
  await connection.ready(5_000);
  const settings = { keyPrefix: 'lock', commandTimeoutMs: 5_000, processName: 'model' };
  node = new RedisNode(connection, {
    ...settings,
    handsOver: false,
    awaitedReplicas: 0,
    fair: false,
    needsAdmission: true,
  });
});
afterAll(async () => {
  await node.close();
  await server.stop();
});

const timeUs = async (): Promise<number> => {
  const [seconds, microseconds] = ((await server.command('TIME')) as string[]).map(Number);
  return seconds! * 1_000_000 + microseconds!;
};

/** An answer, as a promise. */
function toldBy<Answer>(ask: (told: (answer: Answer) => void) => void): Promise<Answer> {
  return new Promise(ask);
}

interface Step {
  real: unknown;
  model: readonly [KeyOnNode, unknown];
}

/** Does on the real server and in the model what the model check does, and tells what came of it. */
async function step(claim: Claim, known: KeyOnNode, kind: number, drawn: number): Promise<Step> {
  const lock = `lock:{${claim.key}}`;
  const { owner } = claim;
  const place = { ticket: owner, isHeard: false };
  const token = (known.fence ?? 2e15) + drawn - 2;
  switch (kind) {
    case 0:
    case 1: {
      const before = await timeUs();
      // The counter is below, at, or above it.
      const admission = { epoch: EPOCH, votesFromUs: (known.fence ?? before) + 2 * drawn - 3 };
      const vote = await toldBy<Vote>((told) =>
        node.vote({ ...claim, place: kind === 0 ? undefined : place }, admission, told),
      );
      const after = await timeUs();
      // A counter that is seeded starts at the time of the server, by whatever is between these two.
      const seed = vote.status === 'granted' ? vote.fencingToken : before;
      const clock = seed >= before && seed <= after ? seed : before;
      return { real: vote, model: SCRIPTS.vote(known, owner, clock, admission.votesFromUs) };
    }
    case 2:
      return { real: await node.raiseFence(claim, token), model: SCRIPTS.raise(known, owner, token) };
    case 3:
      return {
        real: await toldBy((told) => node.extend({ grant: claim, ttlMs: claim.ttlMs }, 'keep', told)),
        model: SCRIPTS.extend(known, owner, 'keep'),
      };
    case 4:
      return {
        real: await toldBy((told) => node.extend({ grant: claim, ttlMs: claim.ttlMs }, 'restore', told)),
        model: SCRIPTS.extend(known, owner, 'restore'),
      };
    case 5:
      return { real: await toldBy((told) => node.release(claim, told)), model: SCRIPTS.release(known, owner) };
    case 6:
      await server.command('DEL', lock);
      return { real: 'the lock ended', model: [{ fence: known.fence }, 'the lock ended'] };
    default:
      await server.command('DEL', lock, `${lock}:fence`);
      return { real: 'the data is lost', model: [{}, 'the data is lost'] };
  }
}

it('a node of the model gives the same answers and keeps the same keys as a server with its scripts, after any sequence [G22]', async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const random = randomOf(seed);
  const pick = (count: number) => Math.floor(random() * count);
  for (let sequence = 0; sequence < SEQUENCES; sequence++) {
    let known: KeyOnNode = {};
    const done: string[] = [];
    for (let index = 0; index < STEPS; index++) {
      const claim = { key: `conformance-${seed}-${sequence}`, owner: OWNERS[pick(OWNERS.length)]!, ttlMs: 600_000 };
      const { real, model } = await step(claim, known, pick(8), pick(5));
      const [after, answer] = model;
      done.push(`${claim.owner} ${JSON.stringify(answer)}`);
      const keys = [`lock:{${claim.key}}`, `lock:{${claim.key}}:fence`];
      const [owner, fence] = (await server.command('MGET', ...keys)) as (string | null)[];
      const comparable = (value: unknown) => JSON.parse(JSON.stringify(value), forgetTtl) as unknown;
      expect({ seed, done, answer: comparable(real), owner, fence }).toEqual({
        seed,
        done,
        answer: comparable(answer),
        owner: after.owner ?? null,
        fence: after.fence === undefined ? null : String(after.fence),
      });
      known = after;
    }
  }
});

/** How long a lock still stands is not modelled. */
function forgetTtl(name: string, value: unknown): unknown {
  return name === 'remainingMs' ? undefined : value;
}
