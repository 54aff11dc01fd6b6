import { NodeError } from '../../api/errors.js';
import { inTime } from '../time/time-limit.js';
import type {
  AcquireOutcome,
  AcquireRequest,
  ExtendOutcome,
  ExtendRequest,
  Grant,
  LockBackend,
  ReleaseOutcome,
} from './lock-backend.js';

/** Methods of a lock backend that need not be written. */
type Optional = 'problems' | 'connect' | 'report' | 'close';

/** A lock backend that is written with promises. A promise that rejects counts as a store that did not answer. */
export interface PromiseBackend
  extends Omit<LockBackend, 'acquire' | 'extend' | 'release' | Optional>, Partial<Pick<LockBackend, Optional>> {
  /** How it is called in errors. */
  readonly name: string;
  acquire(
    request: AcquireRequest,
  ): Promise<{ status: 'acquired'; grant: Grant } | Exclude<AcquireOutcome, { status: 'acquired' }>>;
  extend(request: ExtendRequest): Promise<{ status: 'extended' } | Exclude<ExtendOutcome, { status: 'extended' }>>;
  release(grant: Grant): Promise<ReleaseOutcome>;
}

/**
 * Makes a lock backend of one that is written with promises: gives each of them the time of an attempt, counts leases from
 * before the method was called, and releases what is acquired too late.
 * @param now the clock of the service, in milliseconds
 * @param timeLimitMs for each extension and release; `attemptTimeoutMs` is that of an attempt to acquire
 */
export function fromPromises(backend: PromiseBackend, now: () => number, timeLimitMs = 1_000): LockBackend {
  const unavailable = (error: unknown) => {
    const problem = error instanceof Error ? error.message : String(error);
    return { status: 'unavailable' as const, causes: [new NodeError(backend.name, problem)] };
  };
  const limited = async <Outcome>(ask: () => Promise<Outcome>, limitMs: number, late?: (outcome: Outcome) => void) => {
    try {
      const answer = ask();
      return await inTime(answer, limitMs, () => {
        answer.then(late, () => {});
        throw new Error(`no answer within ${limitMs} ms`);
      });
    } catch (error) {
      return unavailable(error);
    }
  };
  const release = (grant: Grant) => limited(() => backend.release(grant), timeLimitMs);
  return {
    waitQueue: backend.waitQueue,
    attemptTimeoutMs: (ttlMs) => backend.attemptTimeoutMs(ttlMs),
    acquire(request, done) {
      const sentAt = now();
      const outcome = limited(
        () => backend.acquire(request),
        backend.attemptTimeoutMs(request.ttlMs),
        (late) => {
          if (late.status === 'acquired') void release(late.grant);
        },
      );
      void outcome.then((each) => done(each.status === 'acquired' ? { ...each, sentAt } : each));
    },
    extend(request, done) {
      const sentAt = now();
      const outcome = limited(() => backend.extend(request), timeLimitMs);
      void outcome.then((each) => done(each.status === 'extended' ? { ...each, sentAt } : each));
    },
    release: (grant, done) => void release(grant).then(done),
    problems: (silence) => backend.problems?.(silence) ?? [new NodeError(backend.name, silence)],
    inspect: (key) => backend.inspect(key),
    forceRelease: (key) => backend.forceRelease(key),
    connect: async (timeoutMs) => backend.connect?.(timeoutMs) ?? [],
    report: async (timeoutMs) =>
      backend.report?.(timeoutMs) ?? { backend: backend.name, where: `in ${backend.name}`, nodes: [], findings: [] },
    close: async () => backend.close?.(),
  };
}
