import { expect, it, vi } from 'vitest';
import { NodeError } from 'nest-redis-lock';
import type { AcquireOutcome, AcquireRequest, Grant, LockBackend, ReleaseOutcome } from 'nest-redis-lock/testing';
import { EXCLUSIVE } from '../../lib/core/backend/lock-backend.js';
import type { Fault, NodeRelease, Vote } from '../../lib/stores/node/answers.js';
import type { RedisNode } from '../../lib/stores/redis/node/redis-node.js';
import { SingleNodeBackend } from '../../lib/stores/node/single-node.backend.js';
import { placeOf } from '../support/claims.js';

const WAITING = placeOf('me', 3);
const LIMIT_MS = 1_000;

const GRANTED = { status: 'granted', fencingToken: 7 } as const satisfies Vote;
const REFUSED: Vote = { status: 'refused', owner: 'other', remainingMs: 5 };
const fault = (mayHaveRun: boolean, disconnected: boolean): Fault => ({
  status: 'fault',
  error: new NodeError('a node', 'a fault'),
  mayHaveRun,
  disconnected,
});
const BROKEN = fault(true, true);
const NOT_RUN = fault(false, false);

/** Gives a lock back and asks for it again, in one step that is answered with this, and then with the others. */
async function turn(votes: Vote[]) {
  const asked: (string | undefined)[] = [];
  const givenBack: string[] = [];
  const node = {
    acquire: (_request: AcquireRequest, done: (vote: Vote, sentAt: number) => void, owner?: string) => {
      asked.push(owner);
      queueMicrotask(() => done(votes[asked.length - 1]!, 0));
    },
    release: ({ owner }: Grant, _how: object, done?: (release: NodeRelease) => void) => {
      givenBack.push(owner);
      done?.({ status: 'released' });
    },
    leave: () => {},
    name: 'a node',
    store: 'a store',
    connection: { isKnownDown: false, ready: async () => undefined, generation: 'a connection' },
    timeAt: () => undefined,
    waitQueue: {},
  } as unknown as RedisNode;
  const backend = new SingleNodeBackend(node, LIMIT_MS, () => 0, undefined, vi.fn<LockBackend['report']>());
  const released: ReleaseOutcome[] = [];
  const request = { key: 'key', hold: EXCLUSIVE, owner: 'again', ttlMs: 1_000, place: WAITING };
  const outcome = await new Promise<AcquireOutcome>((done) =>
    backend.turn!({ key: 'key', owner: 'mine' }, (each) => void released.push(each), request, done),
  );
  return { outcome: outcome.status, released: released.map(({ status }) => status), asked, givenBack };
}

it.each<[string, Vote[], object]>([
  [
    'that is answered says what became of both',
    [{ ...GRANTED, gaveBack: 'released' }],
    { outcome: 'acquired', released: ['released'], asked: ['mine'], givenBack: [] },
  ],
  [
    'that finds the lock of another says so',
    [{ ...REFUSED, gaveBack: 'gone' }],
    { outcome: 'contended', released: ['gone'], asked: ['mine'], givenBack: [] },
  ],
  [
    'that may have run does not call a lock lost which it may have given back: that is repeated by itself',
    [BROKEN, { ...REFUSED, gaveBack: 'gone' }],
    { outcome: 'contended', released: ['unavailable'], asked: ['mine', undefined], givenBack: ['mine'] },
  ],
  [
    'that was never sent, as none of its calls waits any more, only gives the lock back, and says what became of it',
    [NOT_RUN],
    { outcome: 'unavailable', released: ['released'], asked: ['mine'], givenBack: ['mine'] },
  ],
])('A turn %s [G626]', async (_what, votes, expected) => {
  expect(await turn(votes)).toEqual(expected);
});
