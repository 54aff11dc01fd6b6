import { expect, it } from 'vitest';
import { NodeError } from '../../lib/api/errors.js';
import type { Holder, Holding, LockBackend } from '../../lib/core/backend/lock-backend.js';
import type { Fault } from '../../lib/stores/redis/node/node-answers.js';
import { Proposals } from '../../lib/stores/redis/redlock/proposals.js';
import { RedlockBackend } from '../../lib/stores/redis/redlock/redlock.backend.js';
import type { RedlockNode } from '../../lib/stores/redis/redlock/redlock-node.js';
import type { RedisNode } from '../../lib/stores/redis/node/redis-node.js';
import { SingleNodeBackend } from '../../lib/stores/redis/single/single-node.backend.js';

const REQUEST = { match: '*', limit: 10, budgetMs: 1_000 };
const report = (() => {}) as unknown as LockBackend['report'];

/** What a server says of one key: its holder, that it is free, or nothing. It answers to the search all the same. */
type Says = Partial<Holder & Pick<Holding, 'waiting'>> | 'free' | 'nothing';

function nodeThat(says: Says, at: number, isComplete: boolean): RedisNode {
  const error = new NodeError(`node ${at}`, 'no answer');
  const fault: Fault = { status: 'fault', error, mayHaveRun: false, disconnected: true };
  return {
    scan: () => Promise.resolve({ status: 'scanned', keys: ['key'], isComplete, scanned: 1_000 }),
    inspect: () => Promise.resolve(says === 'nothing' ? fault : { status: 'seen', holding: holdingOf(says) }),
  } as unknown as RedisNode;
}

function holdingOf(says: Exclude<Says, 'nothing'>): Holding | undefined {
  if (says === 'free') return undefined;
  const { waiting, ...holder } = says;
  return { holders: [{ owner: 'x', remainingMs: 1_000, ...holder }], waiting };
}

function redlockOf(says: Says[], complete: boolean[] = says.map(() => true)): RedlockBackend {
  const nodes = says.map((each, at) => ({ node: nodeThat(each, at, complete[at]!) }) as unknown as RedlockNode);
  return new RedlockBackend({
    nodes,
    nodeTimeoutMs: 50,
    now: () => 0,
    proposals: new Proposals(),
    report,
    longestHoldMs: 1,
  });
}

/** The list of a Redlock of these nodes. */
function listOf(says: Says[], complete?: boolean[]) {
  return redlockOf(says, complete).list(REQUEST);
}

const held: Says = { owner: 'a' };

it('a list fails if a server that was searched does not answer for a lock that it has', async () => {
  const backend = new SingleNodeBackend(nodeThat('nothing', 0, true), 50, () => 0, undefined, report);
  await expect(backend.list(REQUEST)).rejects.toMatchObject({ causes: [{ node: 'node 0' }] });
  await expect(listOf(['nothing', held, 'nothing'])).rejects.toMatchObject({
    causes: [{ node: 'node 0' }, { node: 'node 2' }],
  });
});

it('a list of a Redlock is complete when the search of a majority was', async () => {
  const nodes = [held, held, held];
  expect(await listOf(nodes, [true, true, false])).toMatchObject({ locks: [{ key: 'key' }], complete: true });
  expect(await listOf(nodes, [true, false, false])).toMatchObject({ locks: [{ key: 'key' }], complete: false });
});

it.each<[string, Says[], boolean]>([
  ['is on a minority of the nodes that all answer', [held, 'free', 'free'], true],
  ['is split among nodes that all answer', [held, { owner: 'b' }, 'free'], true],
  ['may be on a node that does not answer as well', [held, 'free', 'nothing'], false],
  ['may be so on two of five', [held, 'free', 'free', 'nothing', 'nothing'], false],
  ['is on a minority whatever the one says that does not answer', [held, 'free', 'free', 'free', 'nothing'], true],
  ['is nowhere, whatever the one says that does not answer', ['free', 'free', 'nothing'], true],
])(
  'a list of a Redlock leaves out a lock that %s, and is complete only where that is certain, as `inspect` says free only there',
  async (_where, nodes, complete) => {
    expect(await listOf(nodes)).toMatchObject({ locks: [], complete });
    const said = await redlockOf(nodes)
      .inspect('key')
      .then((holding) => holding ?? 'free')
      .catch(({ code }: { code: string }) => code);
    expect(said).toBe(complete ? 'free' : 'LOCK_UNAVAILABLE');
  },
);

it('those that wait on a Redlock have the foremost of their places', async () => {
  const { locks } = await listOf([{ waiting: ['a', 'b', 'c'] }, { waiting: ['c', 'd', 'b', 'a'] }, {}]);
  expect(locks[0]!.holding.waiting).toEqual(['a', 'c', 'b', 'd']);
});
