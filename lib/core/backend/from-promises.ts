import { setTimeout as delay } from 'node:timers/promises';
import { inspect } from 'node:util';
import { adviceFor, LockError, LockUnavailableError, NodeError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { driftMs, monotonic } from '../time/clock.js';
import { InFlight } from '../time/in-flight.js';
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
  type Transfer,
  type TransferOutcome,
  type Unavailable,
  type WaitQueue,
} from './lock-backend.js';
import { ReleaseRetry } from './release-retry.js';
import { PING_KEY, pingOfOne, reportOfOne, type BackendPing, type BackendReport } from './report.js';
import { WatchedLocks } from './watched-locks.js';

/** An outcome without `sentAt`, which `fromPromises` adds, and with an optional `queued`. */
type Unsent<Outcome> = Outcome extends { sentAt: number }
  ? Omit<Outcome, 'sentAt'>
  : Outcome extends { queued: boolean }
    ? Omit<Outcome, 'queued'> & { queued?: boolean }
    : Outcome;

/** The answer of `acquire`. After `unavailable` or a rejection, `fromPromises` releases the lock: the attempt may have run. */
export type AcquireAnswer = Unsent<AcquireOutcome>;
/** The answers of the other operations. */
export type ExtendAnswer = Unsent<ExtendOutcome>;
export type TransferAnswer = Unsent<TransferOutcome>;

/** The methods of a lock backend that are optional here. */
type Optional = 'attemptTimeoutMs' | 'bounds' | 'probeKey' | 'problems' | 'connect' | 'ping' | 'report' | 'close';

/** A lock backend that is written with promises. If a promise rejects, the store counts as not having answered. */
export interface PromiseBackend
  extends
    Omit<
      LockBackend,
      | 'acquire'
      | 'extend'
      | 'release'
      | 'releaseAndAcquire'
      | 'transfer'
      | 'onReachable'
      | 'insist'
      | 'unreleased'
      | Optional
    >,
    Partial<Pick<LockBackend, Optional>> {
  /** Its name in errors. */
  readonly name: string;
  acquire(request: AcquireRequest): Promise<AcquireAnswer>;
  extend(request: ExtendRequest): Promise<ExtendAnswer>;
  release(grant: Grant, how: Releasing): Promise<ReleaseOutcome>;
  /** It must have no effect after its time limit: nobody would know the owner value that an adoption has then given to the lock. */
  transfer?(request: Transfer): Promise<TransferAnswer>;
  /**
   * A capability of a store without a queue that can report when a lock may be free. First it yields `undefined`: from then on it misses no
   * release. Then it yields the key of each lock that was released or taken by force. After it may have missed one, it yields `undefined` again.
   * It ends when the signal aborts. If it ends or throws earlier, the library calls it again after a growing pause. Without this method, waiting
   * calls poll.
   */
  watch?(signal: AbortSignal): AsyncIterable<string | undefined>;
}

/**
 * Makes a lock backend from one that is written with promises. It adds what the contract promises besides the operations:
 * - Each operation has a time limit.
 * - Leases begin before the store is asked.
 * - A lock that is acquired too late, or without an answer, is released.
 * - A release is repeated until the store confirms it, or the lock has ended by itself.
 * @param now the clock of the service, in milliseconds. By default `performance.now()`
 * @param timeLimitMs for each operation; for an attempt to acquire only if the store has no `attemptTimeoutMs`
 */
export function fromPromises(backend: PromiseBackend, now: () => number = monotonic, timeLimitMs = 1_000): LockBackend {
  return new LimitedBackend(backend, now, timeLimitMs);
}

/** The pause between two attempts to reach the store at startup, in milliseconds. */
const ASK_AGAIN_MS = 50;

class LimitedBackend implements LockBackend {
  /** When each grant ends in the store, by the monotonic clock. */
  readonly #ends = new WeakMap<Grant, number>();
  readonly #retry = new ReleaseRetry<{ grant: Grant; how: Releasing }>(({ grant, how }, done) => {
    void this.#tryRelease(grant, how).then(({ status }) => done(status !== 'unavailable'));
  });

  readonly #releasing = new InFlight();
  readonly #watched?: WatchedLocks;

  constructor(
    private readonly backend: PromiseBackend,
    private readonly now: () => number,
    private readonly timeLimitMs: number,
  ) {
    if (backend.watch && !backend.waitQueue)
      this.#watched = new WatchedLocks(backend.name, (signal) => backend.watch!(signal));
  }

  get bounds(): Bounds {
    return this.backend.bounds ?? {};
  }

  get waitQueue(): WaitQueue | undefined {
    return this.#watched ?? this.backend.waitQueue;
  }

  get modes(): LockBackend['modes'] {
    return this.backend.modes;
  }

  get whyOnlyExclusive(): string | undefined {
    return this.backend.whyOnlyExclusive;
  }

  get sendsLater(): boolean | undefined {
    return this.backend.sendsLater;
  }

  get pollEveryMs(): number | undefined {
    return this.backend.pollEveryMs;
  }

  get guard(): LockBackend['guard'] {
    return this.backend.guard?.bind(this.backend);
  }

  get transfer(): LockBackend['transfer'] {
    return this.backend.transfer && ((request) => this.#tryTransfer(request));
  }

  get whyNoTransfer(): string {
    return this.backend.whyNoTransfer ?? `The store ${quoted(this.backend.name)} cannot change the holder of a lock.`;
  }

  attemptTimeoutMs(): number {
    return this.backend.attemptTimeoutMs?.() ?? this.timeLimitMs;
  }

  acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    const { backend } = this;
    const sentAt = this.now();
    const leave = () => request.place && backend.waitQueue?.leave(request.key, request.place);
    const late = (outcome?: AcquireAnswer) => {
      if (outcome?.status === 'acquired') {
        for (const grant of [outcome.grant, ...(outcome.others ?? [])]) {
          this.#noteTtl(grant, request.ttlMs);
          this.release(grant, {}, () => {});
        }
      } else if (outcome?.status !== 'contended') giveBack();
      else if (outcome.queued) leave();
    };
    const ask = () => outcomeOf('acquire', backend.acquire(request));
    const attempt = this.#withLimit(ask, backend.attemptTimeoutMs?.() ?? this.timeLimitMs, late);
    // The attempt may have run, or may still run, even if the store says that it is unavailable.
    const giveBack = () => {
      const { key, hold, owner, others = [], ttlMs } = request;
      for (const each of [owner, ...others]) {
        const grant = { key, owner: each, hold };
        this.#noteTtl(grant, ttlMs + this.timeLimitMs);
        this.#retryRelease(grant, {});
      }
      leave();
    };
    const undo = (outcome: Unavailable) => {
      giveBack();
      done(outcome);
    };
    void attempt.then(
      (outcome) => {
        if (outcome.status === 'unavailable') return undo(outcome);
        if (outcome.status === 'contended') {
          const isWatched = this.#watched?.isListening() && request.place !== undefined;
          return done({ ...outcome, queued: isWatched ?? outcome.queued ?? false });
        }
        for (const grant of [outcome.grant, ...(outcome.others ?? [])]) this.#noteTtl(grant, request.ttlMs);
        done({ ...outcome, sentAt });
      },
      (cause: NodeError) => undo(unavailable(cause)),
    );
  }

  extend(request: ExtendRequest, done: (outcome: ExtendOutcome) => void): void {
    const sentAt = this.now();
    this.#noteTtl(request.grant, request.ttlMs);
    void this.#withLimit(() => outcomeOf('extend', this.backend.extend(request))).then(
      (outcome) => done(outcome.status === 'extended' ? { ...outcome, sentAt } : outcome),
      (cause: NodeError) => done(unavailable(cause)),
    );
  }

  release(grant: Grant, how: Releasing, done: (outcome: ReleaseOutcome) => void): void {
    this.#releasing.begin();
    void this.#tryRelease(grant, how).then((outcome) => {
      this.#releasing.end();
      if (outcome.status === 'unavailable') this.#retryRelease(grant, how);
      done(outcome);
    });
  }

  probeKey(key: string): string {
    return this.backend.probeKey?.(key) ?? `}${key}:probe`; // a key of a user never begins like this
  }

  problems(silence: string, key: string): NodeError[] {
    return this.backend.problems?.(silence, key) ?? [new NodeError(this.backend.name, silence)];
  }

  inspect(key: string): Promise<Holding | undefined> {
    return this.#withLimit(() => fitting('inspect', this.backend.inspect(key))).catch((cause: NodeError) => {
      throw LockUnavailableError.from('inspected', key, [cause]);
    });
  }

  list(request: ListRequest): Promise<Listed> {
    const limitMs = request.budgetMs + this.timeLimitMs;
    return this.#withLimit(() => fitting('list', this.backend.list(request)), limitMs).catch((cause: NodeError) => {
      throw LockUnavailableError.ofList([cause]);
    });
  }

  forceRelease(key: string, from?: string): Promise<Taken | undefined> {
    return this.#withLimit(() => fitting('forceRelease', this.backend.forceRelease(key, from))).catch(
      (cause: NodeError) => {
        throw LockUnavailableError.from('released by force', key, [cause]);
      },
    );
  }

  /** If the backend has no `connect`, inspects a lock until that succeeds. @throws LockError */
  async connect(timeoutMs: number): Promise<NodeError[]> {
    const { backend } = this;
    const endsAt = monotonic() + timeoutMs;
    const ask = async () => {
      if (backend.connect) return fitting('connect', backend.connect(timeoutMs));
      await backend.inspect(PING_KEY);
      return [];
    };
    for (;;) {
      const leftMs = Math.max(1, Math.ceil(endsAt - monotonic()));
      try {
        return await this.#withLimit(ask, backend.connect ? timeoutMs : Math.min(leftMs, this.timeLimitMs));
      } catch (error) {
        const cause = error as NodeError;
        if (cause.cause instanceof LockError) throw cause.cause;
        if (backend.connect || endsAt - monotonic() <= ASK_AGAIN_MS) throw unreachable(cause, timeoutMs);
      }
      await delay(ASK_AGAIN_MS);
    }
  }

  /** If the backend has no `ping`, inspects a lock. */
  ping(): Promise<BackendPing> {
    const { backend } = this;
    const ask = async () => {
      if (backend.ping) return fitting('ping', backend.ping());
      await backend.inspect(PING_KEY);
      return pingOfOne();
    };
    return this.#withLimit(ask).catch((cause: NodeError) => pingOfOne(cause));
  }

  /** If the backend has no `report`, it has to answer a ping. */
  async report(timeoutMs: number): Promise<BackendReport> {
    const { backend } = this;
    const { name } = backend;
    const ask = async () => {
      if (backend.report) return fitting('report', backend.report(timeoutMs));
      return reportOfOne(name, (await this.ping()).problems[0]);
    };
    try {
      return await this.#withLimit(ask, timeoutMs);
    } catch (cause) {
      return reportOfOne(name, cause as NodeError);
    }
  }

  /** Ends the watch, waits for the releases in flight, tries unconfirmed releases once more, and closes the store. */
  async close(): Promise<void> {
    const unwatched = this.#watched?.close(this.timeLimitMs);
    await this.#releasing.settled();
    await this.#retry.close();
    await unwatched;
    await this.backend.close?.();
  }

  #errorOf(error: unknown): NodeError {
    const { name } = this.backend;
    if (!(error instanceof Error)) return new NodeError(name, String(error));
    return new NodeError(name, error.message, adviceOn(error), false, error);
  }

  #noteTtl(grant: Grant, ttlMs: number): void {
    this.#ends.set(grant, Math.max(this.#ends.get(grant) ?? 0, monotonic() + ttlMs + driftMs(ttlMs)));
  }

  #tryRelease(grant: Grant, how: Releasing): Promise<ReleaseOutcome> {
    return this.#withLimit(() => outcomeOf('release', this.backend.release(grant, how))).catch(unavailable);
  }

  /** Ignores an answer that comes too late: the caller then undoes the transfer. */
  async #tryTransfer(request: Transfer): Promise<TransferOutcome> {
    const sentAt = this.now();
    try {
      const outcome = await this.#withLimit(() => outcomeOf('transfer', this.backend.transfer!(request)));
      if (outcome.status !== 'transferred') return outcome;
      this.#noteTtl(outcome.grant, request.atLeast ? LONGEST_TTL_MS : request.ttlMs);
      return { ...outcome, sentAt };
    } catch (cause) {
      return { status: 'unavailable', causes: [cause as NodeError], mayHaveRun: true };
    }
  }

  #retryRelease(grant: Grant, how: Releasing): void {
    const endsAt = this.#ends.get(grant);
    this.#retry.add({ grant, how }, endsAt === undefined ? LONGEST_TTL_MS : endsAt - monotonic());
  }

  /**
   * @param late called with an answer that comes after the time limit; without one if the store rejects then
   * @throws NodeError
   */
  async #withLimit<Answer>(
    ask: () => Promise<Answer>,
    limitMs = this.timeLimitMs,
    late?: (answer?: Answer) => void,
  ): Promise<Answer> {
    try {
      const answer = ask();
      return await inTime(answer, limitMs, () => {
        answer.then(late, () => late?.());
        throw new Error(`no answer within ${limitMs} ms`);
      });
    } catch (error) {
      throw this.#errorOf(error);
    }
  }
}

/** The advice for an error that shows a mistake in the store's code. For an outage, `fetch` throws a TypeError too, but with a cause. */
function adviceOn(error: Error): string | undefined {
  const isMistake = error instanceof TypeError || error instanceof ReferenceError || error instanceof RangeError;
  return isMistake && error.cause === undefined
    ? 'This is a mistake in the code of the store: the cause of this error has its stack.'
    : undefined;
}

/** An answer before its form is checked. */
type Unchecked = Readonly<
  Record<'grant' | 'others' | 'owner' | 'remainingMs' | 'reason' | 'causes' | 'mayHaveRun', unknown>
>;
type UncheckedGrant = Readonly<Record<keyof Grant, unknown>>;

/** What a part of an answer must be. */
type Rule<Whole> = readonly [what: string, partOf: (whole: Whole) => unknown, isFit: (part: unknown) => boolean];

const GRANT_RULES: readonly Rule<UncheckedGrant>[] = [
  ['a key that is a string', ({ key }) => key, isString],
  ['an owner that is a string', ({ owner }) => owner, isString],
  ['a fencingToken that is a safe integer, or undefined,', ({ fencingToken }) => fencingToken, isToken],
  ['a lastToken that is a safe integer, or undefined,', ({ lastToken }) => lastToken, isToken],
];
const GRANT: readonly Rule<Unchecked>[] = [
  ['a grant', ({ grant }) => grant, isObject],
  ...GRANT_RULES.map(([what, partOf, isFit]): Rule<Unchecked> => [
    `a grant with ${what}`,
    ({ grant }) => partOf(grant as UncheckedGrant),
    isFit,
  ]),
];
const OTHERS: Rule<Unchecked> = ['others that are an array of grants', ({ others = [] }) => others, areGrants];
const OWNER: Rule<Unchecked> = ['an owner that is a string', ({ owner = '' }) => owner, isString];
const REMAINING: Rule<Unchecked> = ['remainingMs that is a number', ({ remainingMs = 0 }) => remainingMs, isNumber];
const REASON: Rule<Unchecked> = ["the reason 'expired' or 'stolen'", ({ reason }) => reason, isReason];
const CAUSES: Rule<Unchecked> = ['causes that are an array of errors', ({ causes }) => causes, areErrors];
const MAY_HAVE_RUN: Rule<Unchecked> = ['mayHaveRun that is a boolean', ({ mayHaveRun }) => mayHaveRun, isBoolean];

/** The statuses of each operation, and the parts that an answer with each of them must have. */
const FORMS: Readonly<Record<string, Readonly<Record<string, readonly Rule<Unchecked>[]>>>> = {
  acquire: { acquired: [...GRANT, OTHERS], contended: [OWNER, REMAINING], unavailable: [CAUSES] },
  extend: { extended: [], lost: [REASON], unavailable: [CAUSES] },
  release: { released: [], gone: [], unavailable: [CAUSES] },
  transfer: { transferred: GRANT, lost: [REASON], unavailable: [CAUSES, MAY_HAVE_RUN] },
};

/**
 * Checks the answer of an operation: the author of the store may have forgotten to return it, or may not use a compiler.
 * @throws Error that names the operation, for an answer that the library cannot use
 */
async function outcomeOf<Outcome extends { status: string }>(
  operation: string,
  answer: Promise<Outcome>,
): Promise<Outcome> {
  const outcome = (await answer) as Outcome | undefined;
  if (typeof outcome?.status !== 'string')
    throw new Error(`${operation}() must answer with an object that has a status: got ${shown(outcome)}`);
  const { status } = outcome;
  const forms = FORMS[operation]!;
  if (!Object.hasOwn(forms, status))
    throw new Error(
      `${operation}() must answer with the status ${Object.keys(forms).join(' or ')}: got ${shown(status)}`,
    );
  const unchecked = outcome as unknown as Unchecked;
  for (const [what, partOf, isFit] of forms[status]!) {
    const part = partOf(unchecked);
    if (!isFit(part))
      throw new Error(`${operation}() must answer with ${what} when its status is '${status}': got ${shown(part)}`);
  }
  return outcome;
}

/** Shows a wrong part of an answer, but not its own parts: they may be owner values, which no error may show. */
function shown(part: unknown): string {
  return inspect(part, { depth: 0 });
}

function isObject(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

function isString(value: unknown): boolean {
  return typeof value === 'string';
}

function isNumber(value: unknown): boolean {
  return typeof value === 'number' && !Number.isNaN(value);
}

function isBoolean(value: unknown): boolean {
  return typeof value === 'boolean';
}

function isToken(value: unknown): boolean {
  return value === undefined || Number.isSafeInteger(value);
}

function isReason(value: unknown): boolean {
  return value === 'expired' || value === 'stolen';
}

function areErrors(value: unknown): boolean {
  return Array.isArray(value) && value.length > 0 && value.every(isObject);
}

function areGrants(value: unknown): boolean {
  const isGrant = (each: unknown) =>
    isObject(each) && GRANT_RULES.every(([, partOf, isFit]) => isFit(partOf(each as UncheckedGrant)));
  return Array.isArray(value) && value.every(isGrant);
}

/** An answer for operators whose form nobody has checked. */
type UncheckedReport =
  Readonly<Record<'locks' | 'holders' | 'from' | 'nodes' | 'problems' | 'findings', unknown>> | undefined;

const isFilled = (value: unknown) => Array.isArray(value) && value.length > 0;

/** What the answer of each operation for operators must be. */
const ANSWERS: Readonly<Record<string, readonly [what: string, isFit: (answer: UncheckedReport) => boolean]>> = {
  connect: ['an array of problems', Array.isArray],
  inspect: ['undefined or an object that has holders', (answer) => answer === undefined || isFilled(answer?.holders)],
  list: ['an object that has locks', (answer) => Array.isArray(answer?.locks)],
  forceRelease: [
    'undefined or an object that has from',
    (answer) => answer === undefined || Array.isArray(answer?.from),
  ],
  ping: [
    'an object that has nodes and problems',
    (answer) => isObject(answer?.nodes) && Array.isArray(answer?.problems),
  ],
  report: [
    'an object that has nodes and findings',
    (answer) => Array.isArray(answer?.nodes) && Array.isArray(answer?.findings),
  ],
};

/** Checks the answer of an operation for operators, as `outcomeOf` does for the others. @throws Error */
async function fitting<Answer>(operation: string, answer: Promise<Answer>): Promise<Answer> {
  const given = await answer;
  const [what, isFit] = ANSWERS[operation]!;
  if (isFit(given as UncheckedReport)) return given;
  throw new Error(`${operation}() must answer with ${what}: got ${shown(given)}`);
}

function unavailable(cause: NodeError): { status: 'unavailable'; causes: NodeError[] } {
  return { status: 'unavailable', causes: [cause] };
}

function unreachable(cause: NodeError, timeoutMs: number): LockUnavailableError {
  const message = `The store cannot be reached (waited ${timeoutMs} ms): ${cause.message}. ${adviceFor([cause])}`;
  return new LockUnavailableError(message, undefined, [cause]);
}
