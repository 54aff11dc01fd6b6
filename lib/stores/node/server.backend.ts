import { setTimeout as delay } from 'node:timers/promises';
import { LockUnavailableError, NodeError, type LockError } from '../../api/errors.js';
import type { LockMode } from '../../api/lock.js';
import {
  LONGEST_TTL_MS,
  type AcquireOutcome,
  type AcquireRequest,
  type Bound,
  type Bounds,
  type ExtendOutcome,
  type ExtendRequest,
  type Grant,
  type Hold,
  type Holding,
  type Listed,
  type ListRequest,
  type LockBackend,
  type Place,
  type ReleaseOutcome,
  type Releasing,
  type Taken,
  type Transfer,
  type TransferOutcome,
  type Unavailable,
  type WaitQueue,
} from '../../core/backend/lock-backend.js';
import { ReleaseRetry } from '../../core/backend/release-retry.js';
import { PING_KEY, pingOfOne, type BackendPing, type BackendReport } from '../../core/backend/report.js';
import { driftMs, monotonic } from '../../core/time/clock.js';
import { outsideOfCalls } from '../../core/time/event-loop.js';
import { InFlight } from '../../core/time/in-flight.js';
import { inTime } from '../../core/time/time-limit.js';

/** How long the client has to notice that its connection is gone before it is asked again, in milliseconds. Each further pause doubles. */
const FIRST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 100;
/** How long after a refusal that passes a release is sent again, in milliseconds. */
const REFUSED_PAUSE_MS = 50;

/** A lock that a server granted, or may have granted, with the notes of its backend. */
export class StoredGrant implements Grant {
  readonly key: string;
  readonly owner: string;
  readonly hold?: Hold;
  /** The longest ttl that was ever sent for it, in milliseconds: which of them the server has applied may be unknown. */
  longestTtlMs: number;

  constructor(
    { key, owner, ttlMs, hold }: Pick<AcquireRequest, 'key' | 'owner' | 'ttlMs'> & { readonly hold?: Hold },
    public fencingToken?: number,
    readonly lastToken?: number,
    readonly nobodyBefore?: number,
  ) {
    this.key = key;
    this.owner = owner;
    this.hold = hold;
    this.longestTtlMs = ttlMs;
  }
}

/** Notes the ttl of an extension that is about to be sent. */
export function noteTtl(grant: Grant, ttlMs: number): void {
  if (grant instanceof StoredGrant && ttlMs > grant.longestTtlMs) grant.longestTtlMs = ttlMs;
}

/** The longest that a lock may stand, in milliseconds from now. */
export function maxRemainingMs(grant: Grant): number {
  const ttlMs = grant instanceof StoredGrant ? grant.longestTtlMs : LONGEST_TTL_MS;
  return ttlMs + driftMs(ttlMs);
}

/** Why a server did not do an operation, or did not confirm it. */
export interface Failed extends Unavailable {
  /** The command may have taken, or may yet take, effect. */
  mayHaveRun: boolean;
  /** The connection failed, or the server refuses for a moment: the same command may pass when it is sent again. */
  disconnected: boolean;
}

/** An outcome, as a server knows it. */
export type Answer<Outcome> = Exclude<Outcome, Unavailable> | Failed;

/** Takes the answer to an attempt. @param sentAt when it was sent; when it failed, if it never was */
export type AttemptCallback = (answer: Answer<AcquireOutcome>, sentAt: number, releaseResult?: ReleaseResult) => void;

/** What became of a lock that was given back in the same step as an attempt. Undefined: that is not known. */
export type ReleaseResult = 'released' | 'gone';

/** How a lock is given back, or kept; or how a place in its queue is given back, with the lock if that was handed over to the place. */
export interface ReleaseRequest extends Releasing {
  /** The entry of the place in the queue; '' for a ticket that has none. Undefined: it is a lock that was granted. */
  readonly entry?: string;
}

/** The keys of locks that a server, or a Cluster, may have. */
export interface Scan extends Pick<Listed, 'complete' | 'scanned'> {
  /** Each once. There may be more than the limit of the request. */
  readonly keys: string[];
}

/** The connection to a server. */
export interface NodeConnection {
  /** Names the server in errors, without credentials. */
  readonly name: string;
  readonly isReady: boolean;
  /** Another one for each time that it was made: it may lead to another server. */
  readonly generation: unknown;
  /** Whether waiting for it is useless: an attempt to reconnect has failed, or took too long. */
  readonly isKnownDown: boolean;
  /** Why it is not ready. */
  readonly problem: NodeError;
  /**
   * Waits until commands can be sent.
   * @param when at the `start` of the application the server may be starting, too
   * @returns the problem; undefined when it is ready
   */
  ready(timeoutMs: number, when?: 'start'): Promise<NodeError | undefined>;
  close(): void;
}

/** An extension that replicas must have. */
export type ReplicatedExtension = ExtendRequest & Pick<Transfer, 'atLeast'>;

/** Replicas that must have a lock before it counts as held. */
export interface AwaitedReplicas {
  readonly shortestTtl: Bound;
  /** The longest that an extension can take, in milliseconds. */
  readonly timeoutMs: number;
  /** Starts the ttl of a lock anew, and waits until enough replicas have that. */
  extend(request: ReplicatedExtension): Promise<Answer<ExtendOutcome>>;
  close(): void;
}

/** What all servers need to know. */
export interface ServerSettings {
  /** How long the server may owe answers and give none, in milliseconds. */
  readonly commandTimeoutMs: number;
  /** The clock of the service, in milliseconds: says when a command was sent. */
  readonly now: () => number;
}

/** What a server needs that keeps locks alone. */
export interface Standalone {
  /** Checks the server. */
  readonly report: LockBackend['report'];
  /** Undefined: they are not waited for. */
  readonly replicas?: AwaitedReplicas;
}

/**
 * Locks that one server keeps, or what acts as one: a Cluster, a Sentinel-managed master. The store says how a lock is taken, extended and
 * given back, once. What is alike in all stores is here: a short break of the connection is ridden out, and what was not confirmed is given
 * back until it is. A `done` callback is called once, after the method has returned, and in the order in which the server answered.
 */
export abstract class ServerBackend implements LockBackend {
  /** The store in errors: `Redis`. */
  abstract readonly store: string;
  abstract readonly connection: NodeConnection;
  readonly bounds: Bounds;
  readonly waitQueue?: WaitQueue;
  readonly modes?: readonly LockMode[];
  onReachable?: () => void;
  /** Releases in flight, and what is sent to others because of them. */
  protected readonly releasing = new InFlight();
  /** Releases that are not confirmed. An attempt that was never sent needs none, so a server that is down adds nothing. */
  readonly #retry: ReleaseRetry<ReleaseRequest & { readonly grant: Grant; readonly cause?: NodeError }>;
  readonly #commandTimeoutMs: number;
  readonly #now: () => number;
  readonly #alone?: Standalone;
  readonly #replicas?: AwaitedReplicas;
  /** Why the attempts have failed that are to be sent again. */
  readonly #lastFailures = new Map<AcquireRequest, NodeError>();

  /** @param alone undefined for a server that keeps locks together with others */
  protected constructor({ commandTimeoutMs, now }: ServerSettings, alone?: Standalone) {
    this.#commandTimeoutMs = commandTimeoutMs;
    this.#now = now;
    this.#alone = alone;
    this.#replicas = alone?.replicas;
    this.bounds = { shortestTtlMs: this.#replicas?.shortestTtl };
    this.#retry = new ReleaseRetry(
      ({ grant, ...how }, done) => this.#giveBackOnce(grant, how, ({ status }) => done(status !== 'unavailable')),
      () => this.connection.isReady,
    );
  }

  /** Whether every command was answered. */
  protected abstract readonly isAnswered: boolean;
  /**
   * Tries to acquire a lock. With a place, a refused attempt is queued.
   * @param ownerToRelease the owner value of a lock of the same key that is given back in the same step: only where there is a queue
   */
  protected abstract attempt(request: AcquireRequest, done: AttemptCallback, ownerToRelease?: string): void;
  protected abstract prolong(request: ExtendRequest, done: (answer: Answer<ExtendOutcome>) => void): void;
  protected abstract move(request: Transfer, done: (answer: Answer<TransferOutcome>) => void): void;
  /** Gives a lock or a place back, or keeps the lock: once. */
  protected abstract giveBack(grant: Grant, how: ReleaseRequest, done: (answer: Answer<ReleaseOutcome>) => void): void;
  /** Who holds a lock. Never rejects. */
  abstract view(key: string): Promise<Holding | undefined | Failed>;
  /** Searches for locks, held or free meanwhile. Takes the budget of the request, and one time limit more, at most. Never rejects. */
  abstract scan(request: ListRequest): Promise<Scan | Failed>;
  /** @param from the owner that the lock is taken from; undefined: from whoever holds it. Never rejects */
  abstract seize(key: string, from?: string): Promise<Taken | undefined | Failed>;
  /** The error of the server, with advice where the problem is known. */
  protected abstract errorOf(problem: string): NodeError;
  /** The error of an application whose start has waited for the server. */
  protected abstract unreachable(problem: NodeError, timeoutMs: number): LockError;

  get name(): string {
    return this.connection.name;
  }

  /** One time limit to reconnect, and one for the command; then the wait for replicas. */
  attemptTimeoutMs(): number {
    return 2 * this.#commandTimeoutMs + (this.#replicas?.timeoutMs ?? 0);
  }

  acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    if (this.#canHold(request)) this.#try(request, (answer, sentAt) => this.#onAnswer(request, answer, sentAt, done));
    else this.#refuseHold(done);
  }

  /**
   * `releaseAndAcquire` of a store that has a queue. A lock whose release was never sent is given back as by any release: also where no
   * call wants the other half any more. After a lost answer nothing says whether the lock that was given back was still held, so it is released by itself.
   */
  protected readonly releaseThenAttempt: NonNullable<LockBackend['releaseAndAcquire']> = (
    grant,
    released,
    request,
    done,
  ) => {
    if (!this.#canHold(request)) {
      this.release(grant, {}, released);
      this.#refuseHold(done);
      return;
    }
    const attempted: AttemptCallback = (outcome, sentAt, releaseResult) => {
      if (releaseResult) {
        released({ status: releaseResult });
      } else if (outcome.status === 'unavailable' && outcome.mayHaveRun) {
        this.release(grant, {});
        released(outcome);
      } else {
        this.release(grant, {}, released);
      }
      this.#onAnswer(request, outcome, sentAt, done);
    };
    this.#try(request, attempted, grant.owner);
  };

  extend(request: ExtendRequest, done: (outcome: Answer<ExtendOutcome>) => void): void {
    noteTtl(request.grant, request.ttlMs);
    const askedAt = this.#now();
    if (this.#replicas) {
      void this.#replicas
        .extend(request)
        .catch(this.#unexpectedFailure)
        .then((outcome) => done(outcome.status === 'extended' ? { ...outcome, sentAt: askedAt } : outcome));
      return;
    }
    try {
      this.prolong(request, done);
    } catch (error) {
      this.#answerUnexpected(error, done);
    }
  }

  /**
   * Gives a lock or a place back, or keeps the lock, as often as it takes.
   * @param grant of a place: the one that it may have been handed
   * @param forMs how long the lock may stand, in milliseconds; Infinity where an attempt that was not answered may yet run
   */
  release(
    grant: Grant,
    { keepUntil, entry }: ReleaseRequest,
    done?: (outcome: Answer<ReleaseOutcome>) => void,
    forMs = maxRemainingMs(grant),
  ): void {
    const how = { keepUntil, entry };
    this.releasing.begin();
    let endsAt: number | undefined;
    const given = (outcome: Answer<ReleaseOutcome>) => {
      if (outcome.status === 'unavailable' && this.#isRefusedForNow(outcome)) {
        endsAt ??= monotonic() + this.#commandTimeoutMs;
        if (monotonic() < endsAt) {
          outsideOfCalls(() => setTimeout(() => this.#giveBackOnce(grant, how, given), REFUSED_PAUSE_MS)).unref();
          return;
        }
      }
      this.releasing.end();
      if (outcome.status === 'unavailable') this.#retry.add({ grant, ...how, cause: outcome.causes[0] }, forMs);
      done?.(outcome);
    };
    this.#giveBackOnce(grant, how, given);
  }

  transfer(request: Transfer): Promise<TransferOutcome> {
    return this.#transferWithRetries(request).catch(this.#unexpectedFailure);
  }

  /** Rides out what an attempt does: the new owner value makes it safe to send the same request again. */
  async #transferWithRetries(request: Transfer): Promise<TransferOutcome> {
    const { ttlMs, atLeast } = request;
    const recovered = this.#recovery(this.#now());
    let mayHaveRun = false;
    for (;;) {
      const answer = await new Promise<Answer<TransferOutcome>>((resolve) => this.move(request, resolve));
      if (answer.status === 'lost') return answer;
      if (answer.status === 'transferred') {
        const { grant } = answer;
        noteTtl(grant, atLeast ? LONGEST_TTL_MS : ttlMs);
        const cause = await this.#replicationProblem({ grant, ttlMs, atLeast });
        return cause ? { status: 'unavailable', causes: [cause], mayHaveRun: true } : answer;
      }
      mayHaveRun ||= answer.mayHaveRun;
      const problem = await recovered(answer);
      if (problem) return { status: 'unavailable', causes: [problem], mayHaveRun };
    }
  }

  /** No key of a user ends so unless another one is named like it; in a Redis Cluster the brace ends the hash tag of the key. */
  probeKey(key: string): string {
    return `${key}}:probe`;
  }

  /**
   * The problem of this server, as far as it is known.
   * @param silence the problem of a server that is connected, but owes an answer
   */
  problem(silence: string): NodeError | undefined {
    if (!this.connection.isReady) return this.connection.problem;
    return this.isAnswered ? undefined : new NodeError(this.name, silence);
  }

  problems(silence: string, key: string): NodeError[] {
    const problem = this.problem(silence) ?? new NodeError(this.name, silence);
    const [, refusal] = [...this.#lastFailures].find(([request]) => request.key === key) ?? [];
    return [problem.problem === silence && refusal ? refusal : problem]; // it has answered
  }

  unreleased(owner: string): NodeError | undefined {
    return this.#retry.find(({ grant }) => grant.owner === owner)?.cause;
  }

  async inspect(key: string): Promise<Holding | undefined> {
    const holding = await this.view(key);
    if (isFailed(holding)) throw LockUnavailableError.from('inspected', key, holding.causes);
    return holding;
  }

  async list(request: ListRequest): Promise<Listed> {
    const scan = await this.scan(request);
    if (isFailed(scan)) throw LockUnavailableError.ofList(scan.causes);
    const keys = scan.keys.slice(0, request.limit);
    const views = await Promise.all(keys.map((key) => this.view(key)));
    const locks: Listed['locks'] = [];
    let complete = scan.complete && keys.length === scan.keys.length;
    views.forEach((view, at) => {
      if (isFailed(view)) {
        if (!view.causes.every(({ isOfKey }) => isOfKey)) throw LockUnavailableError.ofList(view.causes);
        complete = false;
      } else if (view) locks.push({ key: keys[at]!, holding: view });
    });
    return { locks, complete, scanned: scan.scanned };
  }

  async forceRelease(key: string, from?: string): Promise<Taken | undefined> {
    const taken = await this.seize(key, from);
    if (isFailed(taken)) throw LockUnavailableError.from('released by force', key, taken.causes);
    return taken;
  }

  /**
   * Asks the server once, if it is connected: in a Cluster the master of one key, which stands for all. The time limit includes
   * the time for which the command has to wait in this process.
   * @returns the problem; undefined when it answered
   */
  async pingProblem(): Promise<NodeError | undefined> {
    if (!this.connection.isReady) return this.connection.problem;
    const limitMs = this.#commandTimeoutMs;
    const answer = this.view(PING_KEY).then((view) => (isFailed(view) ? view.causes[0] : undefined));
    return inTime(answer, limitMs, () => this.errorOf(`no answer within ${limitMs} ms`));
  }

  async ping(): Promise<BackendPing> {
    return pingOfOne(await this.pingProblem());
  }

  async connect(timeoutMs: number): Promise<NodeError[]> {
    const problem = await this.connection.ready(timeoutMs, 'start');
    if (problem) throw this.unreachable(problem, timeoutMs);
    return [];
  }

  /** Only of a server that keeps locks alone. */
  report(timeoutMs: number): Promise<BackendReport> {
    return this.#alone!.report(timeoutMs);
  }

  /** Waits for releases in flight, tries the unconfirmed ones once more, then closes the connection. */
  async close(): Promise<void> {
    await this.releasing.settled();
    this.closing();
    await this.#retry.close();
    await this.releasing.settled(); // what was sent to others because of them
    this.closed();
    this.connection.close();
    this.#replicas?.close();
  }

  /** Called before the unconfirmed releases are tried for the last time. */
  protected closing(): void {}
  /** Called when nothing more is sent. */
  protected closed(): void {}

  /** The server can be reached again. */
  protected hurry(): void {
    this.#retry.hurry();
    this.onReachable?.();
  }

  #giveBackOnce(grant: Grant, how: ReleaseRequest, done: (answer: Answer<ReleaseOutcome>) => void): void {
    try {
      this.giveBack(grant, how, done);
    } catch (error) {
      this.#answerUnexpected(error, done);
    }
  }

  #try(request: AcquireRequest, done: AttemptCallback, ownerToRelease?: string): void {
    try {
      this.attempt(request, done, ownerToRelease);
    } catch (error) {
      this.#answerUnexpected(error, (answer) => done(answer, this.#now()));
    }
  }

  #answerUnexpected(error: unknown, done: (answer: Failed) => void): void {
    queueMicrotask(() => done(this.#unexpectedFailure(error)));
  }

  /** The answer of what must not throw, nor reject: if it does, nobody must be left waiting. */
  readonly #unexpectedFailure = (error: unknown): Failed => failed(new NodeError(this.name, String(error)), true);

  /** Its connection lives, and nothing has run. A Redlock has other nodes, and does not wait for this one. */
  #isRefusedForNow({ disconnected, mayHaveRun }: Failed): boolean {
    return this.#alone !== undefined && this.connection.isReady && disconnected && !mayHaveRun;
  }

  #canHold({ hold: { mode } }: AcquireRequest): boolean {
    return mode === 'exclusive' || (this.modes?.includes(mode) ?? false);
  }

  /** Answers after the call has returned, as the contract says. */
  #refuseHold(done: (outcome: AcquireOutcome) => void): void {
    const cause = new NodeError(this.name, `locks on ${this.store} are exclusive`, 'Ask for an exclusive lock.', true);
    void Promise.resolve().then(() => done({ status: 'unavailable', causes: [cause] }));
  }

  #onAnswer(
    request: AcquireRequest,
    answer: Answer<AcquireOutcome>,
    sentAt: number,
    done: (outcome: AcquireOutcome) => void,
  ): void {
    const isSettled = answer.status === 'contended' || (answer.status === 'acquired' && !this.#replicas);
    if (isSettled) return done(answer);
    void this.#retryUntilSettled(request, answer, sentAt)
      .catch((error: unknown): Failed => {
        this.#undo(request);
        return this.#unexpectedFailure(error);
      })
      .then((outcome) => {
        this.#lastFailures.delete(request);
        done(outcome);
      });
  }

  /**
   * Rides out a short break of the connection, and a refusal that passes: its owner value makes it safe to send the same attempt again.
   * Then waits for replicas.
   */
  async #retryUntilSettled(
    request: AcquireRequest,
    answer: Answer<AcquireOutcome>,
    sentAt: number,
  ): Promise<AcquireOutcome> {
    const recovered = this.#recovery(sentAt);
    let mayHaveRun = false;
    while (answer.status === 'unavailable') {
      mayHaveRun ||= answer.mayHaveRun;
      this.#lastFailures.set(request, answer.causes[0]!);
      const problem = await recovered(answer);
      if (problem) {
        if (mayHaveRun) this.#undo(request);
        return unavailable(problem);
      }
      answer = await new Promise((resolve) => this.attempt(request, resolve));
    }
    if (answer.status === 'contended') {
      if (!mayHaveRun) return answer;
      this.#undo(request, request.place);
      return { ...answer, hint: undefined }; // its place may have been granted the lock
    }
    // Its others are in the same value, so what has it has them.
    const cause = await this.#replicationProblem({ grant: answer.grant, ttlMs: request.ttlMs });
    if (!cause) return answer;
    this.#undo(request);
    return unavailable(cause);
  }

  /** @returns a function that waits after a failure until the command can be sent again; or says why not to */
  #recovery(startedAt: number): (failed: Failed) => Promise<NodeError | undefined> {
    let pauseMs = FIRST_PAUSE_MS;
    return async ({ disconnected, causes }) => {
      const leftMs = this.#commandTimeoutMs - (this.#now() - startedAt);
      if (!disconnected || leftMs <= 0) return causes[0];
      if (!this.connection.isKnownDown) await delay(Math.min(leftMs, pauseMs));
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
      return this.connection.ready(leftMs);
    };
  }

  /** Why the replicas do not have a lock that was granted; undefined when they do, or are not waited for. */
  async #replicationProblem(request: ReplicatedExtension): Promise<NodeError | undefined> {
    const extension = await this.#replicas?.extend(request);
    if (!extension || extension.status === 'extended') return undefined;
    if (extension.status === 'unavailable') return extension.causes[0];
    const problem = 'the lock was gone from the primary before replicas were known to have it';
    return new NodeError(this.name, problem, undefined, true);
  }

  /**
   * Gives up an attempt. Not awaited, as it matters to the next attempt only, and retried without end: an attempt that was
   * not answered may run when the server goes on.
   * @param keeps the place that it keeps, which the next attempt finds
   */
  #undo({ key, hold, owner, others = [], place }: AcquireRequest, keeps?: Place): void {
    if (place && !keeps) this.waitQueue!.leave(key, place);
    for (const each of place ? others : [owner, ...others])
      this.release({ key, hold, owner: each }, {}, undefined, Infinity);
  }
}

function unavailable(cause: NodeError): Unavailable {
  return { status: 'unavailable', causes: [cause] };
}

export function failed(cause: NodeError, mayHaveRun = false, disconnected = false): Failed {
  return { status: 'unavailable', causes: [cause], mayHaveRun, disconnected };
}

/** Whether this is no answer, but why there is none. */
export function isFailed(answer: object | undefined): answer is Failed {
  return answer !== undefined && 'status' in answer && answer.status === 'unavailable';
}
