import { describe, expect, it } from 'vitest';
import { queueEntry } from '../../lib/stores/redis/node/lock-keys.js';
import { EXTEND, RAISE_FENCE, RELEASE, RESTORE, VOTE, VOTE_OR_QUEUE } from '../../lib/stores/redis/scripts/lua.js';
import type { Script } from '../../lib/stores/redis/scripts/script.js';
import { RedisData } from '../simulation/redis/redis-data.js';
import { RedisEngine } from '../simulation/redis/redis-engine.js';
import { randomOf } from '../support/random.js';
import { explore } from './explorer.js';
import { SCRIPTS, type KeyOnNode, type Lock } from './node.js';
import { redlock } from './redlock.js';
import { MUTANTS, SHORT } from './settings.js';

describe('fencing over a Redlock', () => {
  it.each(Object.keys(SHORT))('the fencing of a Redlock holds in every state of the model: %s [G21]', (name) => {
    const { states, isPartial, problem, trace } = explore(redlock(SHORT[name]!));
    expect({ problem, trace }).toEqual({ problem: undefined, trace: [] });
    expect(isPartial).toBe(false);
    expect(states).toBeGreaterThan(1_000);
  });

  it.each(Object.keys(MUTANTS))('does not hold in a mutant, and the model finds that: %s', (name) => {
    const { problem, trace } = explore(redlock(MUTANTS[name]!));
    expect(problem).toBeDefined();
    expect(trace.at(-1)).toContain('reads');
  });
});

const TTL_MS = 600_000;
const MAX_PROPOSAL_DISTANCE_US = 1_000_000;
const FIRST_US = 1_800_000_000_000_000;
/** One is the beginning of another. */
const OWNERS = ['a', 'b/1', 'b/10'];
/** The distance of a proposal from the time of the node: near it, and beyond the limit on either side. */
const OFFSETS_US = [0, -400_000, 400_000, -3_600_000_000, 3_600_000_000];
/** The distance of a token that is written back from the vote of the node. */
const STEPS_UP = [-1, 0, 1, 20, 5_000_000];
/** Two locks that share a counter. */
const [FENCE, ...LOCKS] = ['lock:fence', 'lock:{a}', 'lock:{b}'] as const;

/** The answers of the scripts, unless listed otherwise. */
const REPLIES: Record<string, unknown> = {
  raised: 1,
  extended: 1,
  absent: 0,
  foreign: -1,
  restored: 2,
  released: 1,
  gone: 0,
};

it('a node of the model gives the same answers and keeps the same keys as the scripts, after any sequence [G22]', () => {
  const seed = Math.floor(Math.random() * 2 ** 31);
  const random = randomOf(seed);
  const pick = (count: number) => Math.floor(random() * count);
  const seen = new Set<unknown>();
  for (let sequence = 0; sequence < 200; sequence++) {
    let us = FIRST_US;
    const engine = new RedisEngine(new RedisData({ nowUs: () => us, timeUs: () => us }));
    const call = (...args: (string | number)[]) => engine.execute(args.map(String));
    const run = ({ source }: Script, keys: string[], ...args: (string | number)[]) =>
      call('EVAL', source, keys.length, ...keys, ...args);
    let known: { fence?: number; locks: readonly (Lock | undefined)[] } = { locks: [] };
    const done: unknown[] = [];
    for (let step = 0; step < 30; step++) {
      us += pick(2) * 1_000;
      const at = pick(2);
      const [lock, owner, drawn] = [LOCKS[at]!, OWNERS[pick(OWNERS.length)]!, pick(5)];
      const node: KeyOnNode = { fence: known.fence, lock: known.locks[at] };
      const token = (node.lock?.token ?? node.fence ?? FIRST_US) + STEPS_UP[drawn]!;
      const asked = { proposal: us + OFFSETS_US[drawn]!, clock: us, limit: MAX_PROPOSAL_DISTANCE_US };
      const vote = `${owner}@${textOf(asked.proposal)}`;
      const queue = `${lock}:queue`;
      const steps: (() => readonly [real: unknown, model: readonly [KeyOnNode, { status: string }]])[] = [
        () => [run(VOTE, ['lock:admission', lock, FENCE], '', TTL_MS, vote), SCRIPTS.vote(node, owner, asked)],
        () => [
          run(VOTE_OR_QUEUE, ['lock:admission', lock, FENCE, queue], '', TTL_MS, vote, queueEntry('wake', 'inbox', owner, 1), 0, 1), // prettier-ignore
          SCRIPTS.vote(node, owner, { ...asked, hasPlace: true }),
        ],
        () => [run(RAISE_FENCE, [lock, FENCE], `${owner}@`, textOf(token)), SCRIPTS.raise(node, owner, token)],
        () => [run(EXTEND, [lock], TTL_MS, `${owner}@`), SCRIPTS.extend(node, owner)],
        () => [run(RESTORE, [lock], TTL_MS, `${owner}@`, textOf(token)), SCRIPTS.restore(node, owner, token)],
        () => [Math.max(0, Number(run(RELEASE, [FENCE, lock, queue], `${owner}@`))), SCRIPTS.release(node, owner)],
        () => [void call('DEL', lock), [{ fence: node.fence }, { status: 'the lock ended' }]],
        () => [void call('DEL', lock, FENCE), [{}, { status: 'the data is lost' }]],
      ];
      const [real, [after, answer]] = steps[pick(steps.length)]!();
      done.push(answer);
      seen.add(answer.status);
      known = { fence: after.fence, locks: LOCKS.map((_, index) => (index === at ? after.lock : known.locks[index])) };
      const values = [...known.locks.map(valueOf), known.fence === undefined ? null : textOf(known.fence)];
      expect({ seed, done, reply: withoutTtl(real), values: call('MGET', ...LOCKS, FENCE) }).toEqual({
        seed,
        done,
        reply: replyOf(answer, node.lock),
        values,
      });
    }
  }
  const happened = ['granted', 'refused', 'the lock ended', 'the data is lost'];
  expect([...seen].sort()).toEqual([...Object.keys(REPLIES), ...happened].sort());
});

/**
 * The reply that stands for an answer of the model.
 * @param lock as it was
 */
function replyOf(answer: { status: string; fencingToken?: number; nodeTimeUs?: number }, lock?: Lock): unknown {
  const { status, fencingToken = 0, nodeTimeUs } = answer;
  if (status === 'refused') return valueOf(lock);
  if (status !== 'granted') return REPLIES[status];
  return nodeTimeUs === undefined ? textOf(fencingToken) : ['at', textOf(fencingToken), nodeTimeUs];
}

/** For a refusal, the value of the lock. */
function withoutTtl(reply: unknown): unknown {
  return Array.isArray(reply) && reply[0] === 'refused' ? (reply[2] as unknown) : reply;
}

/** The value of a lock in Redis. */
function valueOf(lock?: Lock): string | null {
  return lock ? `${lock.owner}@${textOf(lock.token)}${lock.isAwaited ? '+' : ''}` : null;
}

/** A token in Redis. */
function textOf(token: number): string {
  return String(token).padStart(16, '0');
}
