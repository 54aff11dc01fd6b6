import { LockUnavailableError, NodeError } from '../../api/errors.js';
import { driftMs, monotonic } from '../time/clock.js';
import { inTime } from '../time/time-limit.js';
import {
  LONGEST_TTL_MS,
  type AcquireOutcome,
  type AcquireRequest,
  type Bounds,
  type ExtendOutcome,
  type ExtendRequest,
  type Grant,
  type Holding,
  type Listed,
  type ListRequest,
  type LockBackend,
  type ReleaseOutcome,
  type Releasing,
  type Taken,
  type WaitQueue,
} from './lock-backend.js';
import { ReleaseRetry } from './release-retry.js';
import { PING_KEY, pingOfOne, type BackendPing, type BackendReport } from './report.js';

/** The methods of a lock backend that are optional here. */
type Optional = 'bounds' | 'probeKey' | 'problems' | 'connect' | 'ping' | 'report' | 'close';

/** A lock backend that is written with promises. A promise that rejects counts as a store that did not answer. */
export interface PromiseBackend
  extends
    Omit<LockBackend, 'acquire' | 'extend' | 'release' | 'turn' | Optional>,
    Partial<Pick<LockBackend, Optional>> {
  /** Its name in errors. */
  readonly name: string;
  acquire(
    request: AcquireRequest,
  ): Promise<{ status: 'acquired'; grant: Grant } | Exclude<AcquireOutcome, { status: 'acquired' }>>;
  extend(request: ExtendRequest): Promise<{ status: 'extended' } | Exclude<ExtendOutcome, { status: 'extended' }>>;
  release(grant: Grant, how: Releasing): Promise<ReleaseOutcome>;
}

/**
 * Makes a lock backend of one that is written with promises, and keeps what the contract promises beside the operations
 * themselves: each has a time limit, leases count from before the store was asked, what is acquired too late or without an
 * answer is given back, and a release is repeated until it is confirmed or the lock has ended by itself.
 * @param now the clock of the service, in milliseconds
 * @param timeLimitMs for each operation but an attempt to acquire, which has `attemptTimeoutMs`
 */
export function fromPromises(backend: PromiseBackend, now: () => number, timeLimitMs = 1_000): LockBackend {
  return new LimitedBackend(backend, now, timeLimitMs);
}

class LimitedBackend implements LockBackend {
  /** Until when the store may have what it granted, by the monotonic clock. */
  readonly #ends = new WeakMap<Grant, number>();
  readonly #retry = new ReleaseRetry<{ grant: Grant; how: Releasing }>(({ grant, how }, done) => {
    void this.#released(grant, how).then(({ status }) => done(status !== 'unavailable'));
  });

  constructor(
    private readonly backend: PromiseBackend,
    private readonly now: () => number,
    private readonly timeLimitMs: number,
  ) {}

  get bounds(): Bounds {
    return this.backend.bounds ?? {};
  }

  get waitQueue(): WaitQueue | undefined {
    return this.backend.waitQueue;
  }

  attemptTimeoutMs(): number {
    return this.backend.attemptTimeoutMs();
  }

  acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    const { backend } = this;
    const sentAt = this.now();
    const leave = () => request.place && backend.waitQueue?.leave(request.key, request.place);
    const late = (outcome: Awaited<ReturnType<PromiseBackend['acquire']>>) => {
      if (outcome.status === 'acquired') {
        this.#noteTtl(outcome.grant, request.ttlMs);
        this.release(outcome.grant, {}, () => {});
      }
      if (outcome.status === 'contended' && outcome.queued) leave();
    };
    const attempt = this.#limited(() => backend.acquire(request), backend.attemptTimeoutMs(), late);
    void attempt.then(
      (outcome) => {
        if (outcome.status !== 'acquired') return done(outcome);
        this.#noteTtl(outcome.grant, request.ttlMs);
        done({ ...outcome, sentAt });
      },
      (error: unknown) => {
        // The attempt may have run, or run yet.
        const grant = { key: request.key, owner: request.owner };
        this.#noteTtl(grant, request.ttlMs + this.timeLimitMs);
        this.#retryRelease(grant, {});
        leave();
        done(this.#unavailable(error));
      },
    );
  }

  extend(request: ExtendRequest, done: (outcome: ExtendOutcome) => void): void {
    const sentAt = this.now();
    this.#noteTtl(request.grant, request.ttlMs);
    void this.#limited(() => this.backend.extend(request)).then(
      (outcome) => done(outcome.status === 'extended' ? { ...outcome, sentAt } : outcome),
      (error: unknown) => done(this.#unavailable(error)),
    );
  }

  release(grant: Grant, how: Releasing, done: (outcome: ReleaseOutcome) => void): void {
    void this.#released(grant, how).then((outcome) => {
      if (outcome.status === 'unavailable') this.#retryRelease(grant, how);
      done(outcome);
    });
  }

  probeKey(key: string): string {
    return this.backend.probeKey?.(key) ?? `}${key}:probe`; // no key of a user begins like this
  }

  problems(silence: string): NodeError[] {
    return this.backend.problems?.(silence) ?? [new NodeError(this.backend.name, silence)];
  }

  inspect(key: string): Promise<Holding | undefined> {
    return this.#asked('inspected', key, () => this.backend.inspect(key));
  }

  async list(request: ListRequest): Promise<Listed> {
    const { backend } = this;
    try {
      return await this.#limited(() => backend.list(request), request.budgetMs + this.timeLimitMs);
    } catch (error) {
      throw LockUnavailableError.ofList([new NodeError(backend.name, problemOf(error))]);
    }
  }

  forceRelease(key: string, from?: string): Promise<Taken | undefined> {
    return this.#asked('released by force', key, () => this.backend.forceRelease(key, from));
  }

  async connect(timeoutMs: number): Promise<NodeError[]> {
    return this.backend.connect?.(timeoutMs) ?? [];
  }

  /** A backend that has no ping of its own is asked to inspect a lock. */
  async ping(): Promise<BackendPing> {
    const { backend } = this;
    try {
      return await this.#limited(async () => {
        if (backend.ping) return backend.ping();
        await backend.inspect(PING_KEY);
        return pingOfOne();
      });
    } catch (error) {
      return pingOfOne(new NodeError(backend.name, problemOf(error)));
    }
  }

  async report(timeoutMs: number): Promise<BackendReport> {
    const { name } = this.backend;
    const empty = { backend: name, where: `in ${name}`, nodes: [], findings: [] };
    try {
      return (await this.#limited(async () => this.backend.report?.(timeoutMs), timeoutMs)) ?? empty;
    } catch (error) {
      const message = `${name} could not be checked: ${problemOf(error)}.`;
      return { ...empty, findings: [{ severity: 'error', code: 'unreachable', message }] };
    }
  }

  async close(): Promise<void> {
    await this.#retry.close();
    await this.backend.close?.();
  }

  #noteTtl(grant: Grant, ttlMs: number): void {
    this.#ends.set(grant, Math.max(this.#ends.get(grant) ?? 0, monotonic() + ttlMs + driftMs(ttlMs)));
  }

  #released(grant: Grant, how: Releasing): Promise<ReleaseOutcome> {
    return this.#limited(() => this.backend.release(grant, how)).catch((error: unknown) => this.#unavailable(error));
  }

  #retryRelease(grant: Grant, how: Releasing): void {
    const endsAt = this.#ends.get(grant);
    this.#retry.add({ grant, how }, endsAt === undefined ? LONGEST_TTL_MS : endsAt - monotonic());
  }

  async #asked<Answer>(operation: string, key: string, ask: () => Promise<Answer>): Promise<Answer> {
    try {
      return await this.#limited(ask);
    } catch (error) {
      throw LockUnavailableError.from(operation, key, [new NodeError(this.backend.name, problemOf(error))]);
    }
  }

  /** @param late called with an answer that comes after the time limit */
  async #limited<Answer>(
    ask: () => Promise<Answer>,
    limitMs = this.timeLimitMs,
    late?: (answer: Answer) => void,
  ): Promise<Answer> {
    const answer = ask();
    return inTime(answer, limitMs, () => {
      answer.then(late, () => {});
      throw new Error(`no answer within ${limitMs} ms`);
    });
  }

  #unavailable(error: unknown): { status: 'unavailable'; causes: NodeError[] } {
    return { status: 'unavailable', causes: [new NodeError(this.backend.name, problemOf(error))] };
  }
}

function problemOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
