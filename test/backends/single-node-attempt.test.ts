import { expect, it, vi } from 'vitest';
import { NodeError } from 'nest-redis-lock';
import type {
  AcquireOutcome,
  AcquireRequest,
  ExtendRequest,
  Grant,
  LockBackend,
  Place,
  ReleaseOutcome,
} from 'nest-redis-lock/testing';
import { EXCLUSIVE } from '../../lib/core/backend/lock-backend.js';
import type { Fault, NodeExtension, NodeRelease, Vote } from '../../lib/stores/node/answers.js';
import type { RedisNode } from '../../lib/stores/redis/node/redis-node.js';
import type { ReplicaWait } from '../../lib/stores/redis/replicas/replica-wait.js';
import { SingleNodeBackend } from '../../lib/stores/node/single-node.backend.js';
import { acquireOn, claimOn, placeOf } from '../support/claims.js';

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
const NOT_SENT = fault(false, true);
const FAILED_MIDWAY = fault(true, false);
const NOT_RUN = fault(false, false);

/** An attempt that is answered with these votes, one after the other; each takes so long. */
async function attempt(
  votes: Vote[],
  { waiting, voteMs = 1, replicas }: { waiting?: Place; voteMs?: number; replicas?: NodeExtension } = {},
) {
  let now = 0;
  const sentAt: number[] = [];
  const givenBack: string[] = [];
  const node = {
    acquire: (_request: AcquireRequest, done: (vote: Vote, sentAt: number) => void) => {
      const sent = now;
      sentAt.push(sent);
      now += voteMs;
      queueMicrotask(() => done(votes[sentAt.length - 1]!, sent));
    },
    release: ({ owner }: Grant) => void givenBack.push(`release ${owner}`),
    waitQueue: { leave: (_key: string, { ticket }: Place) => void givenBack.push(`leave ${ticket}`) },
    name: 'a node',
    store: 'a store',
    connection: { isKnownDown: false, ready: async () => undefined, generation: 'a connection' },
    timeAt: (_key: string, serverUs: number) => serverUs / 1_000,
  } as unknown as RedisNode;
  const replicated: ExtendRequest[] = [];
  const wait = replicas && {
    extend: async (request: ExtendRequest) => {
      replicated.push(request);
      return replicas;
    },
  };
  const backend = new SingleNodeBackend(
    node,
    LIMIT_MS,
    () => now,
    wait as unknown as ReplicaWait | undefined,
    vi.fn<LockBackend['report']>(),
  );
  const outcome = await acquireOn(backend, { ...claimOn('key'), owner: 'me' }, waiting);
  return { outcome, sentAt, givenBack, replicated: replicated.length };
}

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

const acquired = (fencingToken: number, lastToken: number, sentAt: number) => ({
  outcome: { status: 'acquired', grant: { fencingToken, lastToken }, sentAt },
  givenBack: [],
});
const unavailable = { status: 'unavailable', causes: [expect.any(NodeError)] };

it('An attempt that is granted counts from before it was sent', async () => {
  expect(await attempt([GRANTED])).toMatchObject(acquired(7, 7, 0));
  const block: Vote = { ...GRANTED, lastToken: 9, boundUs: 4_000 };
  const waited = await attempt([block], { waiting: WAITING });
  expect(waited).toMatchObject(acquired(7, 9, 0));
  expect(waited.outcome).toMatchObject({ grant: { nobodyBefore: 4 } });
});

it('An attempt whose connection broke is sent again, and counts from before that', async () => {
  const { sentAt, ...rest } = await attempt([BROKEN, NOT_SENT, GRANTED]);
  expect(sentAt).toEqual([0, 1, 2]);
  expect(rest).toMatchObject(acquired(7, 7, 2));
});

it('An attempt whose connection breaks again and again is given up when its time is over', async () => {
  const { outcome, sentAt } = await attempt(Array(10).fill(BROKEN), { voteMs: LIMIT_MS / 4 });
  expect(outcome).toEqual(unavailable);
  expect(sentAt).toHaveLength(4);
});

it.each([
  ['of which nothing was sent', [NOT_SENT, NOT_RUN], []],
  ['that was not run', [NOT_RUN], []],
  ['that failed midway', [FAILED_MIDWAY], ['it']],
  ['that may have run before its connection broke', [BROKEN, NOT_RUN], ['it']],
  ['that may have run when it was sent again', [NOT_SENT, FAILED_MIDWAY], ['it']],
] as const)('An attempt %s is given back only if it may have run', async (_what, votes, given) => {
  const alone = await attempt([...votes]);
  expect(alone).toMatchObject({ outcome: unavailable, givenBack: given.map(() => 'release me') });
  const queued = await attempt([...votes], { waiting: WAITING });
  expect(queued).toMatchObject({ outcome: unavailable, givenBack: given.map(() => 'leave me') });
});

it('An attempt that is refused after it may have run is released, as the place of one who waits is not', async () => {
  const contended = { status: 'contended', owner: 'other', remainingMs: 5 };
  expect(await attempt([REFUSED])).toMatchObject({ outcome: { ...contended, queued: false }, givenBack: [] });
  expect(await attempt([NOT_SENT, REFUSED])).toMatchObject({ outcome: contended, givenBack: [] });
  expect(await attempt([BROKEN, NOT_SENT, REFUSED])).toMatchObject({ outcome: contended, givenBack: ['release me'] });
  const waited = await attempt([BROKEN, REFUSED], { waiting: WAITING });
  expect(waited).toMatchObject({ outcome: { ...contended, queued: true, isRepeated: true }, givenBack: [] });
  const sentOnce = await attempt([NOT_SENT, REFUSED], { waiting: WAITING });
  expect(sentOnce.outcome).not.toHaveProperty('isRepeated');
});

it.each([
  ['at once', [GRANTED]],
  ['when it was sent again', [BROKEN, GRANTED]],
])('An attempt that is granted %s waits for the replicas, and is given back without them', async (_when, votes) => {
  const has = await attempt(votes, { replicas: { status: 'extended' } });
  expect(has).toMatchObject({ ...acquired(7, 7, votes.length - 1), replicated: 1 });
  for (const replicas of [NOT_RUN, { status: 'absent' }] as NodeExtension[]) {
    expect(await attempt(votes, { replicas })).toMatchObject({ outcome: unavailable, givenBack: ['release me'] });
    const queued = await attempt(votes, { replicas, waiting: WAITING });
    expect(queued).toMatchObject({ outcome: unavailable, givenBack: ['leave me'] });
  }
});

it('An attempt that is not granted does not wait for the replicas', async () => {
  for (const vote of [REFUSED, NOT_RUN]) {
    expect(await attempt([vote], { replicas: { status: 'extended' } })).toMatchObject({ replicated: 0 });
  }
});
