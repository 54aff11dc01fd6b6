import { setTimeout as delay } from 'node:timers/promises';
import { NodeError } from '../../api/errors.js';
import type { LockMode } from '../../api/lock.js';
import {
  LONGEST_TTL_MS,
  type AcquireOutcome,
  type AcquireRequest,
  type Bounds,
  type ExtendOutcome,
  type ExtendRequest,
  type Grant,
  type LockBackend,
  type ReleaseOutcome,
  type Releasing,
  type Transfer,
  type TransferOutcome,
  type WaitQueue,
} from '../../core/backend/lock-backend.js';
import { LastRefusal, noteTtl, StoredGrant } from './grants.js';
import type { Fault, Joined, NodeExtension, NodeRelease, NodeTransfer, Vote } from './answers.js';
import type { AwaitedReplicas, LockNode, ReplicatedExtension } from './lock-node.js';
import { NodesBackend } from './nodes.backend.js';

/** How long the client has to notice that its connection is gone before it is asked again, in milliseconds. Each further pause doubles. */
const FIRST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 100;

/** Locks that one server keeps alone, or what acts as one: a Cluster, a Sentinel-managed master. */
export class SingleNodeBackend extends NodesBackend implements LockBackend {
  readonly bounds: Bounds;
  readonly waitQueue?: WaitQueue;
  readonly turn: LockBackend['turn'];
  readonly pollEveryMs?: number;
  readonly modes?: readonly LockMode[];
  readonly sendsLater?: boolean;
  readonly whyOnlyExclusive?: string;
  readonly guard: LockBackend['guard'];
  onReachable?: () => void;
  /** Why the attempts have failed that are to be sent again. */
  readonly #failing = new Map<AcquireRequest, NodeError>();

  /**
   * @param replicas undefined: they are not waited for
   * @param report checks the server
   */
  constructor(
    private readonly node: LockNode,
    private readonly commandTimeoutMs: number,
    private readonly now: () => number,
    private readonly replicas: AwaitedReplicas | undefined,
    readonly report: LockBackend['report'],
  ) {
    super([node], 1);
    this.waitQueue = node.waitQueue;
    this.pollEveryMs = node.pollEveryMs;
    this.modes = node.modes;
    this.sendsLater = node.sendsLater;
    this.whyOnlyExclusive = node.whyOnlyExclusive;
    this.turn = node.waitQueue && ((...half) => this.#turn(...half));
    this.guard = node.guard && ((...asked) => node.guard!(...asked));
    node.onReachable = () => this.onReachable?.();
    this.bounds = { shortestTtlMs: replicas?.shortestTtl };
  }

  insist(): void {
    this.node.insist?.();
  }

  /** One time limit to reconnect, and one for the command; then the wait for replicas. */
  attemptTimeoutMs(): number {
    return 2 * this.commandTimeoutMs + (this.replicas?.timeoutMs ?? 0);
  }

  acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    if (!this.#canHold(request)) return this.#refuseHold(done);
    this.node.acquire(request, (vote, sentAt) => this.#voted(request, vote, sentAt, done));
  }

  /**
   * A lock whose turn was never sent is given back as by any release: also where no call wants the other half any more. Of one that
   * may have run, the answer to its repetition would not say whether the lock was still held: it is given back as often as it takes.
   */
  #turn(
    grant: Grant,
    released: (outcome: ReleaseOutcome) => void,
    request: AcquireRequest,
    done: (outcome: AcquireOutcome) => void,
  ): void {
    if (!this.#canHold(request)) {
      this.release(grant, {}, released);
      return this.#refuseHold(done);
    }
    const voted = (vote: Vote | Joined, sentAt: number) => {
      if (vote.gaveBack) {
        released({ status: vote.gaveBack });
      } else if (vote.status === 'fault' && vote.mayHaveRun) {
        this.node.release(grant, {});
        released({ status: 'unavailable', causes: [vote.error] });
      } else {
        this.release(grant, {}, released);
      }
      this.#voted(request, vote, sentAt, done);
    };
    this.node.acquire(request, voted, grant.owner);
  }

  #canHold({ hold: { mode } }: AcquireRequest): boolean {
    return mode === 'exclusive' || (this.modes?.includes(mode) ?? false);
  }

  #voted(request: AcquireRequest, vote: Vote | Joined, sentAt: number, done: (outcome: AcquireOutcome) => void): void {
    if (isGranted(vote) && !this.replicas) {
      done(this.#acquired(request, vote, sentAt));
      return;
    }
    // It must not reject; but if it does, the line must not be left waiting.
    void this.#outcomeOf(vote, request, sentAt)
      .catch((bug: unknown): AcquireOutcome => ({
        status: 'unavailable',
        causes: [new NodeError(this.node.name, String(bug))],
      }))
      .then((outcome) => {
        this.#failing.delete(request);
        done(outcome);
      });
  }

  /**
   * Rides out a short break of the connection, and a refusal that passes: its owner value makes it safe to send the same attempt again.
   * @param sentAt when it was sent; when it failed, if it never was
   */
  async #outcomeOf(vote: Vote | Joined, request: AcquireRequest, sentAt: number): Promise<AcquireOutcome> {
    const { place } = request;
    const recovery = this.#recovery(sentAt);
    let undo = false;
    for (;;) {
      if (isGranted(vote)) {
        const acquired = this.#acquired(request, vote, sentAt);
        const { grant } = acquired; // its others are in the same value, so what has it has them
        const cause = this.replicas && (await this.#missing(this.replicas, { grant, ttlMs: request.ttlMs }));
        if (!cause) return acquired;
        this.#undo(request);
        return { status: 'unavailable', causes: [cause] };
      }
      if (vote.status === 'refused') {
        if (undo && !place) this.#undo(request);
        const { owner, others, remainingMs, isKept, wasPassedOver, latestToken, smallestLimit } = vote;
        const { generation } = this.node.connection;
        const hint = place && new LastRefusal(place, sentAt, generation, latestToken, undo || wasPassedOver);
        const smallerLimit = smallerThanIts(request, smallestLimit);
        const queued = place !== undefined;
        return { status: 'contended', owner, others, remainingMs, isKept, smallerLimit, queued, hint };
      }
      undo ||= vote.mayHaveRun;
      this.#failing.set(request, vote.error);
      const error = await recovery(vote);
      if (error) {
        if (undo) this.#undo(request);
        return { status: 'unavailable', causes: [error] };
      }
      [vote, sentAt] = await new Promise<[Vote | Joined, number]>((resolve) =>
        this.node.acquire(request, (...answer) => resolve(answer)),
      );
    }
  }

  /** @returns a function that waits after a fault until the command can be sent again; or says why not to */
  #recovery(startedAt: number): (fault: Fault) => Promise<NodeError | undefined> {
    let pauseMs = FIRST_PAUSE_MS;
    return async ({ disconnected, error }) => {
      const { connection } = this.node;
      const leftMs = this.commandTimeoutMs - (this.now() - startedAt);
      if (!disconnected || leftMs <= 0) return error;
      if (!connection.isKnownDown) await delay(Math.min(leftMs, pauseMs));
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      return connection.ready(leftMs);
    };
  }

  extend(request: ExtendRequest, done: (outcome: ExtendOutcome) => void): void {
    noteTtl(request.grant, request.ttlMs);
    const extended = (extension: NodeExtension, sentAt: number) => done(extendOutcome(extension, sentAt));
    const askedAt = this.now();
    if (this.replicas) void this.replicas.extend(request).then((extension) => extended(extension, askedAt));
    else this.node.extend(request, 'keep', extended);
  }

  release(grant: Grant, how: Releasing, done: (outcome: ReleaseOutcome) => void): void {
    this.node.release(grant, how, (release) => done(releaseOutcome(release)));
  }

  /** Rides out what an attempt does: the new owner value makes it safe to send the same request again. */
  async transfer(request: Transfer): Promise<TransferOutcome> {
    const { key, to, ttlMs, atLeast, hold } = request;
    const recovery = this.#recovery(this.now());
    let mayHaveRun = false;
    for (;;) {
      const [transfer, sentAt] = await new Promise<[NodeTransfer, number]>((resolve) =>
        this.node.transfer(request, (...answer) => resolve(answer)),
      );
      if (transfer.status === 'transferred') {
        const grant = new StoredGrant(
          { key, owner: to, ttlMs: atLeast ? LONGEST_TTL_MS : ttlMs, hold },
          transfer.fencingToken,
        );
        const cause = this.replicas && (await this.#missing(this.replicas, { grant, ttlMs, atLeast }));
        if (cause) return { status: 'unavailable', causes: [cause], mayHaveRun: true };
        return { status: 'transferred', grant, sentAt };
      }
      if (transfer.status !== 'fault') {
        return { status: 'lost', reason: transfer.status === 'foreign' ? 'stolen' : 'expired' };
      }
      mayHaveRun ||= transfer.mayHaveRun;
      const error = await recovery(transfer);
      if (error) return { status: 'unavailable', causes: [error], mayHaveRun };
    }
  }

  problems(silence: string): NodeError[] {
    const problem = this.node.problem(silence) ?? new NodeError(this.node.name, silence);
    const [refusal] = this.#failing.values();
    return [problem.problem === silence && refusal ? refusal : problem]; // it has answered
  }

  async connect(timeoutMs: number): Promise<NodeError[]> {
    const error = await this.node.connection.ready(timeoutMs, 'start');
    if (error) throw this.node.unreachable(error, timeoutMs);
    return [];
  }

  async close(): Promise<void> {
    await this.node.close();
    this.replicas?.close();
  }

  #acquired(request: AcquireRequest, vote: Granted, sentAt: number): Extract<AcquireOutcome, { status: 'acquired' }> {
    const { fencingToken, boundUs } = vote;
    const nobodyBefore = boundUs === undefined ? undefined : this.node.timeAt(request.key, boundUs);
    const lastToken = vote.status === 'granted' ? (vote.lastToken ?? fencingToken) : fencingToken;
    const grantTo = (owner: string) =>
      new StoredGrant(owner === request.owner ? request : { ...request, owner }, fencingToken, lastToken, nobodyBefore);
    const grant = grantTo(request.owner);
    if (vote.status === 'granted') return { status: 'acquired', grant, sentAt };
    const others = request.others?.slice(0, vote.others).map(grantTo);
    const smallerLimit = smallerThanIts(request, vote.smallestLimit);
    return { status: 'acquired', grant, others, smallerLimit, sentAt };
  }

  /** Answers after the call has returned, as the contract says. */
  #refuseHold(done: (outcome: AcquireOutcome) => void): void {
    const { name, store } = this.node;
    const cause = new NodeError(name, `locks on ${store} are exclusive`, 'Ask for an exclusive lock.', true);
    void Promise.resolve().then(() => done({ status: 'unavailable', causes: [cause] }));
  }

  /** Why the replicas do not have a lock that was granted; undefined when they do. */
  async #missing(replicas: AwaitedReplicas, request: ReplicatedExtension): Promise<NodeError | undefined> {
    const extension = await replicas.extend(request);
    if (extension.status === 'extended') return undefined;
    if (extension.status === 'fault') return extension.error;
    const problem = 'the lock was gone from the primary before replicas were known to have it';
    return new NodeError(this.node.name, problem, undefined, true);
  }

  /**
   * Gives up an attempt. Not awaited, as it matters to the next attempt only, and retried without end: an attempt that was
   * not answered may run when the server goes on.
   */
  #undo(request: AcquireRequest): void {
    if (request.place) this.waitQueue!.leave(request.key, request.place);
    else this.node.release(request, {}, undefined, Infinity);
    for (const owner of request.others ?? []) this.node.release({ ...request, owner }, {}, undefined, Infinity);
  }
}

type Granted = Extract<Vote, { status: 'granted' }> | Joined;

function isGranted(vote: Vote | Joined): vote is Granted {
  return vote.status === 'granted' || vote.status === 'joined';
}

/** The smallest limit of permits that a holder names, if it is smaller than that of the request. */
function smallerThanIts({ hold }: AcquireRequest, smallestLimit: number | undefined): number | undefined {
  if (hold.mode !== 'permits' || smallestLimit === undefined) return undefined;
  return smallestLimit < hold.limit ? smallestLimit : undefined;
}

function extendOutcome(extension: NodeExtension, sentAt: number): ExtendOutcome {
  switch (extension.status) {
    case 'extended':
      return { status: 'extended', sentAt };
    case 'fault':
      return { status: 'unavailable', causes: [extension.error] };
    default:
      return { status: 'lost', reason: extension.status === 'foreign' ? 'stolen' : 'expired' };
  }
}

function releaseOutcome(release: NodeRelease): ReleaseOutcome {
  return release.status === 'fault' ? { status: 'unavailable', causes: [release.error] } : { status: release.status };
}
