import type { Claim } from '../support/claims.js';
import { EXCLUSIVE } from '../../lib/core/backend/lock-backend.js';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { LIMIT_US } from '../../lib/stores/redis/node/node-answers.js';
import type { NodeExtension, Vote } from '../../lib/stores/node/answers.js';
import { RedisNode } from '../../lib/stores/redis/node/redis-node.js';
import { LockKeys, valueText } from '../../lib/stores/redis/node/lock-keys.js';
import { randomOf } from '../support/random.js';
import { connectionTo } from '../support/port-of.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { SCRIPTS, type KeyOnNode, type Lock } from './node.js';

const SEQUENCES = 40;
const STEPS = 30;
const EPOCH = '1000000000000000';
/** One is the beginning of another. */
const OWNERS = ['a', 'b/1', 'b/10'];
const SECOND_US = 1_000_000;
/** How far a proposal is from the time of the node: near it, and beyond the limit on either side. */
const OFFSETS_US = [0, -400_000, 400_000, -3_600 * SECOND_US, 3_600 * SECOND_US];
/** How far a token that is written back is from the vote of the node. */
const STEPS_UP = [-1, 0, 1, 20, 5 * SECOND_US];
const KEYS = new LockKeys('lock', 'sharded');

let server: RedisServer;
let node: RedisNode;
beforeAll(async () => {
  server = await RedisServer.start();
  await server.command('SET', 'lock:admission', `${EPOCH} 20 model`);
  const connection = await connectionTo(server.url);
  await connection.ready(5_000);
  node = new RedisNode(connection, {
    keyPrefix: 'lock',
    commandTimeoutMs: 5_000,
    processName: 'model',
    handsOver: false,
    awaitedReplicas: 0,
    needsAdmission: true,
  });
  const listener = { onTurn: () => {}, onListening: () => {}, onTaken: () => {}, onWarning: () => {} };
  node.listen('any', listener); // a vote takes a place in the queue only where its process listens
  await until(() => node.isListening('any'), { what: 'the node listens' });
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
function answerTo<Answer>(ask: (done: (answer: Answer) => void) => void): Promise<Answer> {
  return new Promise(ask);
}

/** What a node knows of two keys that have one counter. */
interface Known {
  fence?: number;
  locks: readonly [Lock?, Lock?];
}

/** Two keys that no other sequence uses, and that have the same counter. */
function keysOfOneCounter(name: string): [string, string] {
  const first = `${name}-a`;
  for (let number = 0; ; number++) {
    const second = `${name}-b${number}`;
    if (KEYS.fence(second) === KEYS.fence(first)) return [first, second];
  }
}

interface Step {
  real: unknown;
  model: readonly [KeyOnNode, unknown];
}

/** Does on the real server and in the model what the model check does, and says what came of it. */
async function step(claim: Claim, known: KeyOnNode, kind: number, drawn: number): Promise<Step> {
  const { key, owner } = claim;
  const token = (known.lock?.token ?? known.fence ?? 2e15) + STEPS_UP[drawn]!;
  const extend = (mode: 'keep' | 'restore') =>
    answerTo<NodeExtension>((done) =>
      node.extend({ grant: { key, owner, fencingToken: token }, ttlMs: claim.ttlMs }, mode, done),
    );
  switch (kind) {
    case 0:
    case 1: {
      const hasPlace = kind === 1;
      const place = hasPlace
        ? { ticket: owner, hold: EXCLUSIVE, turns: 1, calls: 1, arrivedAt: 0, isTaken: false }
        : undefined;
      const before = await timeUs();
      const proposal = before + OFFSETS_US[drawn]!;
      const vote = await answerTo<Vote>((done) =>
        node.vote({ ...claim, hold: EXCLUSIVE, place }, { epoch: EPOCH }, valueText(owner, proposal), done),
      );
      const after = await timeUs();
      // The node says its time where its vote depends on that. Elsewhere it does not matter when it was.
      const clock = (vote.status === 'granted' && vote.nodeTimeUs) || before;
      const asked = { proposal, clock: Math.min(Math.max(clock, before), after), limit: LIMIT_US, hasPlace };
      return { real: vote, model: SCRIPTS.vote(known, owner, asked) };
    }
    case 2:
      return { real: await node.raiseFence(claim, token), model: SCRIPTS.raise(known, owner, token) };
    case 3:
      return { real: await extend('keep'), model: SCRIPTS.extend(known, owner) };
    case 4:
      return { real: await extend('restore'), model: SCRIPTS.restore(known, owner, token) };
    case 5:
      return { real: await answerTo((done) => node.release(claim, {}, done)), model: SCRIPTS.release(known, owner) };
    case 6:
      await server.command('DEL', KEYS.lock(key));
      return { real: 'the lock ended', model: [{ fence: known.fence }, 'the lock ended'] };
    default:
      await server.command('DEL', KEYS.lock(key), KEYS.fence(key));
      return { real: 'the data is lost', model: [{}, 'the data is lost'] };
  }
}

it('a node of the model gives the same answers and keeps the same keys as a server with its scripts, after any sequence [G22]', async () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const random = randomOf(seed);
  const pick = (count: number) => Math.floor(random() * count);
  const seen = new Set<string>();
  for (let sequence = 0; sequence < SEQUENCES; sequence++) {
    const keys = keysOfOneCounter(`conformance-${seed}-${sequence}`);
    await server.command('DEL', KEYS.fence(keys[0])); // keys of an earlier sequence may have the same counter
    let known: Known = { locks: [] };
    const done: string[] = [];
    for (let index = 0; index < STEPS; index++) {
      const at = pick(2);
      const claim = { key: keys[at]!, owner: OWNERS[pick(OWNERS.length)]!, ttlMs: 600_000 };
      const { real, model } = await step(claim, { fence: known.fence, lock: known.locks[at] }, pick(8), pick(5));
      const [{ fence, lock }, answer] = model;
      known = { fence, locks: at === 0 ? [lock, known.locks[1]] : [known.locks[0], lock] };
      done.push(`${claim.owner} at ${at}: ${JSON.stringify(answer)}`);
      seen.add(statusOf(answer));
      const names = [...keys.map((key) => KEYS.lock(key)), KEYS.fence(keys[0])];
      const values = await server.command('MGET', ...names);
      const comparable = (value: unknown) => JSON.parse(JSON.stringify(value), forgetWhatIsNotModelled) as unknown;
      expect({ seed, done, answer: comparable(real), values }).toEqual({
        seed,
        done,
        answer: comparable(answer),
        values: [...keys.map((_, key) => valueOf(known.locks[key])), textOf(fence)],
      });
    }
  }
  expect([...seen].sort()).toEqual(EVERY_STATUS);
});

const EVERY_STATUS = [
  'absent',
  'extended',
  'foreign',
  'gone',
  'granted as proposed',
  'granted at a time',
  'raised',
  'refused',
  'released',
  'restored',
  'the data is lost',
  'the lock ended',
];

function statusOf(answer: unknown): string {
  if (typeof answer === 'string') return answer;
  const { status, nodeTimeUs } = answer as { status: string; nodeTimeUs?: number };
  return status !== 'granted' ? status : nodeTimeUs === undefined ? 'granted as proposed' : 'granted at a time';
}

/** The value of a lock in Redis. */
function valueOf(lock?: Lock): string | null {
  return lock ? `${lock.owner}@${textOf(lock.token)}${lock.isAwaited ? '+' : ''}` : null;
}

/** A token in Redis. */
function textOf(token?: number): string | null {
  return token === undefined ? null : String(token).padStart(16, '0');
}

/** How long a lock still stands, and the queue. */
function forgetWhatIsNotModelled(name: string, value: unknown): unknown {
  return ['remainingMs', 'wasPassedOver', 'latestToken'].includes(name) ? undefined : value;
}
