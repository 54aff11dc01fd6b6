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

/** The first pause before a failed command is repeated, in milliseconds, so that the client can notice a lost connection. Pauses double. */
const FIRST_PAUSE_MS = 5;
const LONGEST_PAUSE_MS = 100;
/** The pause before a release is repeated after a temporary refusal, in milliseconds. */
const REFUSED_PAUSE_MS = 50;

/** A lock that a server granted, or may have granted, with the data that its backend needs. */
export class StoredGrant implements Grant {
  readonly key: string;
  readonly owner: string;
  readonly hold?: Hold;
  /** The longest ttl that was sent for it, in milliseconds. The backend may not know which ttl the server has applied. */
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

/** Records the ttl of an extension before it is sent. */
export function noteTtl(grant: Grant, ttlMs: number): void {
  if (grant instanceof StoredGrant && ttlMs > grant.longestTtlMs) grant.longestTtlMs = ttlMs;
}

/** Returns the maximum time for which the lock may still exist in the store, in milliseconds. */
export function maxRemainingMs(grant: Grant): number {
  const ttlMs = grant instanceof StoredGrant ? grant.longestTtlMs : LONGEST_TTL_MS;
  return ttlMs + driftMs(ttlMs);
}

/** The reason why a server did not perform or did not confirm an operation. */
export interface Failed extends Unavailable {
  /** Whether the command may have taken effect, or may still do so. */
  mayHaveRun: boolean;
  /** Whether the connection failed or the refusal is temporary, so that a retry may succeed. */
  disconnected: boolean;
}

/** An outcome of the contract. A failure has the details that a retry needs. */
export type Answer<Outcome> = Exclude<Outcome, Unavailable> | Failed;

/** Receives the answer to an attempt. @param sentAt the time when it was sent, or when it failed unsent */
export type AttemptCallback = (answer: Answer<AcquireOutcome>, sentAt: number, releaseResult?: ReleaseResult) => void;

/** The result of a release in the same step as an attempt. Undefined if it is unknown. */
export type ReleaseResult = 'released' | 'gone';

/** How to release or keep a lock, or how to give up a place in its queue, with the lock if it was handed over. */
export interface ReleaseRequest extends Releasing {
  /** The entry of the place in the queue, or '' for a ticket without one. Undefined for a lock that was granted directly. */
  readonly entry?: string;
}

/** The keys of locks on a server or a Cluster. */
export interface Scan extends Pick<Listed, 'complete' | 'scanned'> {
  /** Without duplicates. There may be more than the limit of the request. */
  readonly keys: string[];
}

export interface NodeConnection {
  /** Names the server in errors, without credentials. */
  readonly name: string;
  readonly isReady: boolean;
  /** Changes with each reconnection, which may lead to another server. */
  readonly generation: unknown;
  /** Whether waiting is useless: an attempt to reconnect has failed or takes too long. */
  readonly isKnownDown: boolean;
  /** The reason why it is not ready. */
  readonly problem: NodeError;
  /**
   * Waits until commands can be sent.
   * @param when `start` while the application starts: the server may still be starting, too
   * @returns the problem, or undefined when commands can be sent
   */
  ready(timeoutMs: number, when?: 'start'): Promise<NodeError | undefined>;
  close(): void;
}

/** An extension that replicas must confirm. */
export type ReplicatedExtension = ExtendRequest & Pick<Transfer, 'atLeast'>;

/** The replicas that must have a lock before it counts as held. */
export interface AwaitedReplicas {
  readonly shortestTtl: Bound;
  /** The maximum duration of an extension, in milliseconds. */
  readonly timeoutMs: number;
  /** Restarts the ttl of a lock, and waits until enough replicas have the new ttl. */
  extend(request: ReplicatedExtension): Promise<Answer<ExtendOutcome>>;
  close(): void;
}

export interface ServerSettings {
  /** How long the server may leave all commands unanswered, in milliseconds. */
  readonly commandTimeoutMs: number;
  /** The clock of the service, in milliseconds. It measures when a command was sent. */
  readonly now: () => number;
}

/** The extra settings of a server that keeps locks alone, unlike a node of a Redlock. */
export interface Standalone {
  /** Checks the server. */
  readonly report: LockBackend['report'];
  /** Undefined if locks do not wait for replicas. */
  readonly replicas?: AwaitedReplicas;
}

/**
 * The base of all backends with a server, a Cluster, or a master behind Sentinels. A store implements one attempt at each operation.
 * This class adds what all stores need: it retries attempts after a short break of the connection, and repeats releases until the
 * server confirms them. A `done` callback is called once, after the method has returned, in the order of the server's answers.
 */
export abstract class ServerBackend implements LockBackend {
  /** The name of the store for errors, such as `Redis`. */
  abstract readonly store: string;
  abstract readonly connection: NodeConnection;
  readonly bounds: Bounds;
  readonly waitQueue?: WaitQueue;
  readonly modes?: readonly LockMode[];
  onReachable?: () => void;
  /** Releases in flight, and the messages that they cause. */
  protected readonly releasing = new InFlight();
  /** Unconfirmed releases. An attempt that was never sent needs no release, so none pile up while the server is down. */
  readonly #retry: ReleaseRetry<ReleaseRequest & { readonly grant: Grant; readonly cause?: NodeError }>;
  readonly #commandTimeoutMs: number;
  readonly #now: () => number;
  readonly #alone?: Standalone;
  readonly #replicas?: AwaitedReplicas;
  /** The last failure of each attempt that will be retried. */
  readonly #lastFailures = new Map<AcquireRequest, NodeError>();

  /** @param alone undefined for a node of a Redlock */
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

  /** Whether the server has answered every command. */
  protected abstract readonly isAnswered: boolean;
  /**
   * Tries once to acquire a lock. A refused attempt with a place joins the queue.
   * @param ownerToRelease the owner of a lock of the same key to release in the same step. Only stores with a queue support it
   */
  protected abstract attempt(request: AcquireRequest, done: AttemptCallback, ownerToRelease?: string): void;
  protected abstract prolong(request: ExtendRequest, done: (answer: Answer<ExtendOutcome>) => void): void;
  protected abstract move(request: Transfer, done: (answer: Answer<TransferOutcome>) => void): void;
  /** Tries once to release or keep a lock, or to give up a place. */
  protected abstract giveBack(grant: Grant, how: ReleaseRequest, done: (answer: Answer<ReleaseOutcome>) => void): void;
  /** Returns the holders of a lock. Never rejects. */
  abstract view(key: string): Promise<Holding | undefined | Failed>;
  /** Searches for locks; some may be free by now. Takes at most the budget of the request plus one time limit. Never rejects. */
  abstract scan(request: ListRequest): Promise<Scan | Failed>;
  /** Takes a lock away by force. Never rejects. @param from the owner to take it from; undefined for any owner */
  abstract seize(key: string, from?: string): Promise<Taken | undefined | Failed>;
  /** Returns an error of this server, with advice if the problem is known. */
  protected abstract errorOf(problem: string): NodeError;
  /** Returns the error of an application whose start has waited for the server. */
  protected abstract unreachable(problem: NodeError, timeoutMs: number): LockError;

  get name(): string {
    return this.connection.name;
  }

  /** One time limit to reconnect, one for the command, and the wait for replicas. */
  attemptTimeoutMs(): number {
    return 2 * this.#commandTimeoutMs + (this.#replicas?.timeoutMs ?? 0);
  }

  acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    if (this.#canHold(request)) this.#try(request, (answer, sentAt) => this.#onAnswer(request, answer, sentAt, done));
    else this.#refuseHold(done);
  }

  /**
   * Implements `releaseAndAcquire` for stores with a queue. If the command was never sent, the lock is released separately, even if no
   * call wants the new lock any more. After a lost answer the lock is also released separately, since it may still be held.
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
   * Releases or keeps a lock, or gives up a place, and retries until the server confirms it.
   * @param grant the lock. For a place, the lock that may have been handed over to it
   * @param forMs how long the lock may still exist, in milliseconds; Infinity if an unanswered attempt may still run
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

  /** Retries like an attempt. The new owner value makes it safe to send the same request again. */
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

  /** A key that users do not use. In a Redis Cluster the brace ends the hash tag, so this key has the same slot as `key`. */
  probeKey(key: string): string {
    return `${key}}:probe`;
  }

  /**
   * Returns the problem of this server, if there is one.
   * @param silence the text for a connected server that has not answered
   */
  problem(silence: string): NodeError | undefined {
    if (!this.connection.isReady) return this.connection.problem;
    return this.isAnswered ? undefined : new NodeError(this.name, silence);
  }

  problems(silence: string, key: string): NodeError[] {
    const problem = this.problem(silence) ?? new NodeError(this.name, silence);
    const [, refusal] = [...this.#lastFailures].find(([request]) => request.key === key) ?? [];
    return [problem.problem === silence && refusal ? refusal : problem]; // the server has answered this attempt
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
   * Sends one command if the server is connected. In a Cluster it asks only one master. The time limit includes the time that the
   * command waits in this process.
   * @returns the problem, or undefined when the server answered
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

  /** Only for a server that keeps locks alone. */
  report(timeoutMs: number): Promise<BackendReport> {
    return this.#alone!.report(timeoutMs);
  }

  /** Waits for releases in flight, retries the unconfirmed ones once more, then closes the connection. */
  async close(): Promise<void> {
    await this.releasing.settled();
    this.closing();
    await this.#retry.close();
    await this.releasing.settled(); // the messages that the last releases have caused
    this.closed();
    this.connection.close();
    this.#replicas?.close();
  }

  /** Called before the last retry of unconfirmed releases. */
  protected closing(): void {}
  /** Called when nothing more is sent. */
  protected closed(): void {}

  /** Called when the server can be reached again. */
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

  /** Turns an unexpected error into a failure, so that no caller waits forever. */
  readonly #unexpectedFailure = (error: unknown): Failed => failed(new NodeError(this.name, String(error)), true);

  /** Whether the server is connected and has refused a command only temporarily. A Redlock has other nodes and does not wait for one. */
  #isRefusedForNow({ disconnected, mayHaveRun }: Failed): boolean {
    return this.#alone !== undefined && this.connection.isReady && disconnected && !mayHaveRun;
  }

  #canHold({ hold: { mode } }: AcquireRequest): boolean {
    return mode === 'exclusive' || (this.modes?.includes(mode) ?? false);
  }

  /** Answers after the call has returned, as the contract requires. */
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
   * Retries after a short break of the connection or a temporary refusal. The owner value makes it safe to send the same attempt again.
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
      return { ...answer, hint: undefined }; // the place may have received the lock meanwhile
    }
    // All owners of the request are in one value, so a replica that has one owner has all of them.
    const cause = await this.#replicationProblem({ grant: answer.grant, ttlMs: request.ttlMs });
    if (!cause) return answer;
    this.#undo(request);
    return unavailable(cause);
  }

  /** @returns a function that waits after a failure until the command can be sent again, or returns why it should not be */
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

  /** Waits for replicas. @returns why they do not have the granted lock; undefined if they have it, or if locks do not wait for them */
  async #replicationProblem(request: ReplicatedExtension): Promise<NodeError | undefined> {
    const extension = await this.#replicas?.extend(request);
    if (!extension || extension.status === 'extended') return undefined;
    if (extension.status === 'unavailable') return extension.causes[0];
    const problem = 'the primary lost the lock before replicas had confirmed it';
    return new NodeError(this.name, problem, undefined, true);
  }

  /**
   * Undoes an attempt. Nobody waits for this, and it is retried without limit: an unanswered attempt may run when the server resumes.
   * @param keeps the place that stays for the next attempt
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

/** Whether this is a failure instead of an answer. */
export function isFailed(answer: object | undefined): answer is Failed {
  return answer !== undefined && 'status' in answer && answer.status === 'unavailable';
}
