import { expect, it, vi } from 'vitest';
import { NodeError } from 'nest-redis-lock';
import type { AcquireOutcome, AcquireRequest, LockBackend, ReleaseOutcome } from 'nest-redis-lock/testing';
import { EXCLUSIVE, type Grant, type Place, type WaitQueue } from '../../lib/core/backend/lock-backend.js';
import {
  ServerBackend,
  type Answer,
  type AttemptCallback,
  type AwaitedReplicas,
  type Failed,
  type ReleaseResult,
  type ReleaseRequest,
  type NodeConnection,
} from '../../lib/stores/node/server.backend.js';
import { placeOf } from '../support/claims.js';
import { serviceOn } from '../support/open-locks.js';

const WAITING = placeOf('me', 3);
const LIMIT_MS = 1_000;
const REQUEST = { key: 'key', hold: EXCLUSIVE, owner: 'again', ttlMs: 1_000 };

type Reply = [answer: Answer<AcquireOutcome>, releaseResult?: ReleaseResult];

const GRANTED: Reply[0] = { status: 'acquired', grant: { key: 'key', owner: 'again', fencingToken: 7 }, sentAt: 0 };
const REFUSED: Reply[0] = { status: 'contended', owner: 'other', remainingMs: 5, queued: true };
const failed = (mayHaveRun: boolean, disconnected: boolean): Failed => ({
  status: 'unavailable',
  causes: [new NodeError('a node', 'a fault')],
  mayHaveRun,
  disconnected,
});
const BROKEN = failed(true, true);
const NOT_RUN = failed(false, false);

/** A server that answers attempts with these replies. */
class Server extends ServerBackend {
  readonly store = 'a store';
  override readonly modes = ['permits'] as const;
  readonly connection = {
    name: 'a node',
    isReady: true,
    isKnownDown: false,
    ready: async () => undefined,
    generation: 'a connection',
    close: () => {},
  } as unknown as NodeConnection;
  readonly left: string[] = [];
  override readonly waitQueue = {
    leave: (_key: string, { ticket }: Place) => void this.left.push(ticket),
  } as unknown as WaitQueue;
  readonly releaseAndAcquire: NonNullable<LockBackend['releaseAndAcquire']> = this.releaseThenAttempt;
  readonly isAnswered = true;
  readonly asked: (string | undefined)[] = [];
  readonly ownerToRelease: string[] = [];

  constructor(
    private readonly replies: Reply[],
    replicas?: AwaitedReplicas,
  ) {
    super({ commandTimeoutMs: LIMIT_MS, now: () => 0 }, { report: vi.fn<LockBackend['report']>(), replicas });
  }

  attempt(_request: AcquireRequest, done: AttemptCallback, ownerToRelease?: string): void {
    this.asked.push(ownerToRelease);
    const reply = this.replies[this.asked.length - 1];
    if (!reply) throw new Error('a mistake');
    const [answer, releaseResult] = reply;
    queueMicrotask(() => done(answer, 0, releaseResult));
  }

  protected giveBack({ owner }: Grant, _how: ReleaseRequest, done: (answer: Answer<ReleaseOutcome>) => void): void {
    this.ownerToRelease.push(owner);
    done({ status: 'released' });
  }

  protected prolong = vi.fn<() => never>();
  protected move = vi.fn<() => never>();
  view = vi.fn<() => never>();
  scan = vi.fn<() => never>();
  seize = vi.fn<() => never>();
  protected errorOf = vi.fn<() => never>();
  protected unreachable = vi.fn<() => never>();
}

/** Releases a lock and asks for it again in one step, which gets the first of these replies, and then the others. */
async function turn(replies: Reply[]) {
  const server = new Server(replies);
  const released: ReleaseOutcome[] = [];
  const request = { ...REQUEST, place: WAITING };
  const outcome = await new Promise<AcquireOutcome>((done) =>
    server.releaseAndAcquire({ key: 'key', owner: 'mine' }, (each) => void released.push(each), request, done),
  );
  const { asked, ownerToRelease } = server;
  return { outcome: outcome.status, released: released.map(({ status }) => status), asked, ownerToRelease };
}

it.each<[string, Reply[], object]>([
  [
    'that is answered says what became of both',
    [[GRANTED, 'released']],
    { outcome: 'acquired', released: ['released'], asked: ['mine'], ownerToRelease: [] },
  ],
  [
    'that finds the lock of another says so',
    [[REFUSED, 'gone']],
    { outcome: 'contended', released: ['gone'], asked: ['mine'], ownerToRelease: [] },
  ],
  [
    'that may have run does not call a lock lost which it may have given back: that is repeated by itself',
    [[BROKEN], [REFUSED, 'gone']],
    { outcome: 'contended', released: ['unavailable'], asked: ['mine', undefined], ownerToRelease: ['mine'] },
  ],
  [
    'that was never sent, as none of its calls waits any more, only gives the lock back, and says what became of it',
    [[NOT_RUN]],
    { outcome: 'unavailable', released: ['released'], asked: ['mine'], ownerToRelease: ['mine'] },
  ],
  [
    'whose store makes a mistake gives the lock back by itself',
    [],
    { outcome: 'unavailable', released: ['unavailable'], asked: ['mine'], ownerToRelease: ['mine'] },
  ],
])('A turn %s [G626]', async (_what, replies, expected) => {
  expect(await turn(replies)).toEqual(expected);
});

it('A bug in a store with servers becomes an outcome, and its close waits for nothing', async () => {
  const mistake = vi.fn<() => never>(() => {
    throw new Error('a mistake');
  });
  const server = Object.assign(new Server([]), { prolong: mistake, move: mistake, giveBack: mistake });
  const grant = { key: 'key', owner: 'mine' };
  const transfer = { key: 'key', from: 'mine', to: 'yours', ttlMs: 1_000, mints: true };
  const outcomes = [
    await new Promise((done) => server.extend({ grant, ttlMs: 1_000 }, done)),
    await new Promise((done) => server.release(grant, {}, done)),
    await server.transfer(transfer),
  ];
  const unavailable = { status: 'unavailable', mayHaveRun: true, causes: [{ problem: 'Error: a mistake' }] };
  expect(outcomes).toMatchObject([unavailable, unavailable, unavailable]);
  await server.close();
  expect(mistake).toHaveBeenCalledTimes(4); // the release again
});

it.each<[string, Reply[], Partial<AwaitedReplicas>?]>([
  ['its attempt', []],
  ['its second attempt, after the connection broke', [[BROKEN]]],
  ['the wait for replicas', [[GRANTED]], { extend: () => Promise.reject(new Error('a mistake')) }],
])(
  'A bug of a store in %s becomes an outcome, and a lock that may have been granted is given back',
  async (_what, replies, replicas) => {
    const server = new Server(replies, replicas as AwaitedReplicas);
    let isCalled = false;
    const outcome = new Promise<AcquireOutcome>((done) => server.acquire(REQUEST, done)).finally(
      () => (isCalled = true),
    );
    expect(isCalled).toBe(false);
    expect(await outcome).toMatchObject({ status: 'unavailable', causes: [{ problem: 'Error: a mistake' }] });
    expect(server.ownerToRelease).toEqual(['again']);
  },
);

it('An attempt for several calls that may have run, and is refused when it is sent again, keeps its place and releases the others', async () => {
  const server = new Server([[BROKEN], [REFUSED]]);
  const request = {
    ...REQUEST,
    hold: { mode: 'permits', permits: 1, limit: 9 },
    others: ['beside'],
    place: WAITING,
  } as const;
  const outcome = await new Promise<AcquireOutcome>((done) => server.acquire(request, done));
  expect(outcome.status).toBe('contended');
  expect(server.ownerToRelease).toEqual(['beside']);
  expect(server.left).toEqual([]);
});

/** Two masters of a Cluster: the master of `a` refuses for a moment, the master of all other keys does not answer. */
class Masters extends Server {
  readonly owing: AttemptCallback[] = [];

  override attempt({ key }: AcquireRequest, done: AttemptCallback): void {
    if (key === 'a') queueMicrotask(() => done(failed(false, true), 0));
    else this.owing.push(done);
  }
}

it('A call that gets no answer does not name what the master of another key refuses', async () => {
  const masters = new Masters([]);
  const locks = serviceOn(masters, { waitMs: 300 });
  const refused = expect(locks.acquire('a')).rejects.toThrow('a fault');
  await expect(locks.acquire('b')).rejects.toThrow(/no answer for \d+ ms, and waitMs has passed/);
  await refused;
  masters.attempt = (_request, done) => queueMicrotask(() => done(NOT_RUN, 0));
  for (const done of masters.owing) done(NOT_RUN, 0);
});
