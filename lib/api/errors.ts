import { inspect } from 'node:util';
import { describeHolders, describePermits, type LockHolder } from './holder.js';
import { inWords, printable, quoted } from './printable.js';

/** The stable, machine-readable code of each error of this library. */
export type LockErrorCode =
  | 'LOCK_CONTENDED'
  | 'LOCK_UNAVAILABLE'
  | 'LOCK_LOST'
  | 'LOCK_SELF_DEADLOCK'
  | 'LOCK_KEY'
  | 'LOCK_OPTIONS'
  | 'LOCK_STALE_TOKEN';

/** Why a lock that was held is no longer held. */
export type LockLostReason =
  /** The lease ended without being extended, or was missing from the store (deleted, flushed, evicted). */
  | 'expired'
  /** Another owner holds it. */
  | 'stolen'
  /**
   * `forceRelease` took it: in this process, or in another one whose message reached this process. A holder that gets no message
   * notices the loss when it extends the lease. Its reason is then `expired`, or `stolen` if the lock already has another owner.
   */
  | 'forced'
  /** The store, or too many of its nodes, could not be reached until the deadline. */
  | 'unavailable'
  /** This process did not run until the deadline (blocked event loop, stopped, suspended), or its clock was set ahead. */
  | 'stalled'
  /** Its work held it for longer than `maxHoldMs`. Other calls get the lock once the work ends or the lease expires. */
  | 'overstayed'
  /** The application closed and the handler did not finish within `shutdownTimeoutMs`. */
  | 'shutdown'
  /** Its own holder had already released the lock. */
  | 'released';

/**
 * Base class of all errors of this library. It has the same properties as errors of the `http-errors` package (`status`,
 * `statusCode`, `expose: false`). So Nest's own exception filter answers with the right status, and hides the message from the
 * client: it names keys, holders and nodes.
 */
export abstract class LockError extends Error {
  // Each class has a literal, since bundlers shorten the names of classes.
  abstract override name: string;
  abstract readonly code: LockErrorCode;
  readonly statusCode: number;
  /** Never shown to an HTTP client. */
  readonly expose = false;

  constructor(
    message: string,
    readonly status: number,
    /** The key of the lock, if there is one. */
    readonly key?: string,
    options?: { cause?: unknown },
  ) {
    // The message may contain text from other programs that nothing has escaped yet.
    super(printable(message, Infinity), options?.cause === undefined ? undefined : options);
    this.statusCode = status;
  }

  /** The fields that GraphQL servers show next to the message. */
  get extensions(): { code: LockErrorCode } {
    return { code: this.code };
  }
}

/**
 * Base class of the errors of calls that did not get their lock. They print as one line, without a stack. They are created when
 * an answer arrives or a timer fires, so a stack would only show sockets and timers.
 */
export abstract class LockRefusal extends LockError {
  /** The `Class.method` whose `@Locked` or `@Limited` asked for the lock, if there is one. The message begins with it. */
  readonly method?: string;

  /** Adds the name of the method whose call was refused. @internal */
  of(method: string): this {
    if (this.method !== undefined) return this;
    const named = Object.assign(this, { method, message: `${method}: ${this.message}` });
    withoutFrames(named);
    return named;
  }

  /** @internal */
  [inspect.custom](): string {
    return this.stack!;
  }
}

function withoutFrames(error: Error): void {
  error.stack = `${error.name}: ${error.message}`;
}

/** What this process knows about a lock that others hold. */
export interface Contention {
  /** The holder, if known; one of them if several hold the lock. */
  readonly holder?: LockHolder;
  /** The number of holders besides `holder`, if known. */
  readonly others?: number;
  /**
   * Milliseconds until the holder's lease expires unless it is extended; Infinity for a key without a ttl. If several hold the
   * lock, until the first of their leases expires. For an exclusive call, which waits for all of them, until the last one expires.
   */
  readonly remainingMs?: number;
  /** The time when the lock becomes free, by the clock of this process. Set if the work has ended and `holdMs` keeps the lock. */
  readonly keptUntil?: Date;
  /** Set if the call did not wait because this many calls of this process were already waiting. */
  readonly maxWaiters?: number;
  /** The number of permits that the call asked for; `undefined` for a lock. */
  readonly permits?: number;
  /** The keys of the locks that the refused call held while it waited, the outermost first; by default none. */
  readonly holding?: readonly string[];
  /** Whether the holder is known to be this process. @internal */
  readonly isOwn?: boolean;
  /** The reason why the lock is still held although this process has released it. @internal */
  readonly unreleased?: NodeError;
}

/** The fields of `Contention`, with times in whole milliseconds. */
export interface LockContendedError extends Contention {} // oxlint-disable-line typescript/no-unsafe-declaration-merging -- all is optional

/** Another holder kept the lock for the whole `waitMs`. HTTP status 409. */
export class LockContendedError extends LockRefusal {
  override name = 'LockContendedError';
  readonly code = 'LOCK_CONTENDED';
  /** Whole milliseconds that this call waited. */
  readonly waitedMs: number;
  /** The keys of the locks that this call held while it waited, the outermost first; empty if it held none. */
  readonly holding: readonly string[];

  constructor(
    override readonly key: string,
    waitedMs: number,
    contention: Contention = {},
  ) {
    // Destructured here and not in the signature: the published declarations lack the @internal fields.
    const { isOwn = false, others = 0, holding = [], unreleased, ...known } = contention;
    const { holder, remainingMs, keptUntil, maxWaiters, permits } = known;
    const by = holder ? describeHolders(holder, others) + (isOwn ? ', which is this process' : '') : 'others';
    const more = remainingMs === Infinity ? 'does not expire' : `runs for another ${Math.round(remainingMs ?? 0)} ms`;
    const lease = remainingMs === undefined ? '' : ` (${others > 0 ? 'one of their leases' : 'its lease'} ${more})`;
    const state = keptUntil
      ? `is kept until ${keptUntil.toISOString()} by the holdMs of ${by}`
      : `is held by ${by}${lease}`;
    const waited =
      maxWaiters === undefined
        ? `gave up after waiting ${Math.round(waitedMs)} ms. Raise waitMs`
        : `${maxWaiters} calls of this process are already waiting for it. Raise maxWaiters`;
    const [under, instead] =
      permits === undefined
        ? ['lock', 'tryAcquire, or onContended of @Locked']
        : ['permits', 'tryAcquirePermits, or onContended of @Limited'];
    super(
      `${subjectOf(key, permits)} ${state}; ${waited}, or ${keptUntil ? 'lower holdMs' : `shorten the work under the ${under}`}. ` +
        `To do something else instead, use ${instead}.` +
        describeHeldLocks(key, holding, permits !== undefined) +
        (unreleased
          ? ` This process has released the lock, but the release was not confirmed: ${whyAndAdvice([unreleased])}`
          : ''),
      409,
      key,
      { cause: unreleased },
    );
    this.waitedMs = Math.round(waitedMs);
    this.holding = holding;
    Object.assign(this, known);
    if (others > 0) Object.assign(this, { others });
    if (remainingMs !== undefined) Object.assign(this, { remainingMs: Math.round(remainingMs) });
    withoutFrames(this);
  }
}

/** Returns the beginning of the sentence about the holder. Permits are also taken while a call holds their key as a lock. */
function subjectOf(key: string, permits: number | undefined): string {
  if (permits === undefined) return `Lock ${quoted(key)}`;
  return `${describePermits(key, permits)} ${permits === 1 ? 'is' : 'are'} not free: the lock`;
}

/** Returns the sentence about the locks that a refused call held: its wait may have been part of a deadlock. */
function describeHeldLocks(key: string, holding: readonly string[], isForPermits: boolean): string {
  if (holding.length === 0) return '';
  const held = inWords(holding.map(quoted));
  const [one, both] = holding.length === 1 ? [held, 'both'] : ['one of them', 'all'];
  return (
    ` This call held ${held} meanwhile: if the holder of ${quoted(key)} waits for ${one}, neither can continue; ` +
    `take ${both} ${isForPermits ? 'in the same order everywhere' : 'at once with acquireAll'}.`
  );
}

/** How many characters of a server's reply an error shows. */
const MAX_PROBLEM_LENGTH = 500;

/** The error of one node that did not answer, or gave an unexpected answer. Never contains credentials. */
export class NodeError extends Error {
  override name = 'NodeError';
  /** The problem of the node, as one line; a long reply of a server is cut. */
  readonly problem: string;

  constructor(
    /** Name of the node, such as `host:port`. */
    readonly node: string,
    problem: string,
    /** What to do, in sentences; by default to check that the node can be reached. */
    readonly advice?: string,
    /** Whether the node refused only this key or this call, and serves others. */
    readonly isOfKey = false,
    /** The error that your own store threw. */
    cause?: Error,
  ) {
    const shown = printable(problem, MAX_PROBLEM_LENGTH);
    super(`${printable(node)}: ${shown}`, cause && { cause });
    this.problem = shown;
    withoutFrames(this);
  }

  /** @internal */
  [inspect.custom](): string {
    return this.stack!;
  }
}

/** The store, or too many of its nodes, could not be reached or used. HTTP status 503. */
export class LockUnavailableError extends LockRefusal {
  override name = 'LockUnavailableError';
  readonly code = 'LOCK_UNAVAILABLE';

  constructor(
    message: string,
    key?: string,
    /** One cause for each node that did not answer, or gave an unexpected answer. */
    readonly causes: readonly NodeError[] = [],
  ) {
    super(message, 503, key, { cause: causes[0] });
    withoutFrames(this);
  }

  /** Makes the error of an operation on a lock that failed on the nodes. @internal */
  static from(operation: string, key: string, given: readonly NodeError[]): LockUnavailableError {
    const causes = atLeastOne(given);
    return new LockUnavailableError(
      `Lock ${quoted(key)} could not be ${operation}: ${whyAndAdvice(causes)}`,
      key,
      causes,
    );
  }

  /** Makes the error of a list that failed on the nodes. @internal */
  static ofList(given: readonly NodeError[]): LockUnavailableError {
    const causes = atLeastOne(given);
    return new LockUnavailableError(`The locks could not be listed: ${whyAndAdvice(causes)}`, undefined, causes);
  }
}

/** Adds a cause if there is none: an error without causes means that the application closes. */
function atLeastOne(causes: readonly NodeError[]): readonly NodeError[] {
  return causes.length > 0 ? causes : [new NodeError('the store', 'it gave no reason')];
}

function whyAndAdvice(causes: readonly NodeError[]): string {
  const nodes = causes.map((cause) => cause.message).join('; ');
  return `${nodes}. ${adviceFor(causes)}`;
}

/** Joins the advice of these problems, without repetition. */
export function adviceFor(causes: readonly NodeError[]): string {
  const silent = new Set(causes.filter(({ advice }) => advice === undefined).map(({ node }) => node));
  const advice = new Set(causes.flatMap((cause) => cause.advice ?? []));
  if (silent.size > 0) advice.add(`Check that ${inWords([...silent])} can be reached.`);
  return [...advice].join(' ');
}

/** The result of the work under a lost lock. */
export type LockOutcome = { status: 'fulfilled'; value: unknown } | { status: 'rejected'; reason: unknown };

const LOST_BECAUSE: Record<LockLostReason, string> = {
  expired: 'its lease ended, or it was deleted from the store',
  stolen: 'another owner holds it',
  forced: 'it was taken by force, with forceRelease',
  unavailable: 'it could not be extended before its deadline',
  stalled: 'this process was paused or blocked past its deadline',
  overstayed: 'its work held it for longer than maxHoldMs',
  shutdown: 'the application closed before the work was done',
  released: 'it had already been released, or detached',
};

/**
 * The lock was held and no longer is: the work under it may have overlapped with another holder. HTTP status 503; 409 for a
 * parcel whose lock has ended, since nothing ran.
 * Make late writes harmless by checking `fencingToken` at the resource.
 */
export class LockLostError extends LockError {
  override name = 'LockLostError';
  readonly code = 'LOCK_LOST';

  constructor(
    override readonly key: string,
    readonly reason: LockLostReason,
    /** The result or the error of the work, with `onLost: 'reject'`; `undefined` if the work has not ended. */
    readonly outcome?: LockOutcome,
    cause?: unknown,
    explanation = `${LOST_BECAUSE[reason]}. Stop the work when lock.signal aborts, and check the fencing token where it writes.`,
    status: 409 | 503 = 503,
  ) {
    super(`Lock ${quoted(key)} is no longer held (${reason}): ${explanation}`, status, key, { cause });
  }

  /** Makes the error of permits, which have no fencing token. @internal */
  static ofPermits(key: string, reason: LockLostReason, outcome?: LockOutcome, cause?: unknown): LockLostError {
    const explanation = `${LOST_BECAUSE[reason]}. Stop the work when permit.signal aborts: permits have no fencing token that could stop it.`;
    return new LockLostError(key, reason, outcome, cause, explanation);
  }

  /** Makes the error of a parcel whose lock has ended. @param digest the digest of the parcel's owner value, which is a secret @internal */
  static ofParcel(key: string, reason: 'expired' | 'stolen', digest: string): LockLostError {
    const explanation =
      reason === 'stolen'
        ? `the parcel ${digest} was adopted before, or its lock has ended and another owner has it now. A parcel can be adopted only once: ` +
          'skip the work, or acquire the lock again.'
        : `the lock of the parcel ${digest} has ended, or was released. If the work still has to be done, acquire the lock again. Next time, detach it with a longer ttlMs.`;
    return new LockLostError(key, reason, undefined, undefined, explanation, 409);
  }
}

/**
 * A call would wait for itself: it asked again for a lock that it holds, with `reentrant: false`, or it asked for the lock of an
 * election that its own process leads. HTTP status 500.
 */
export class LockSelfDeadlockError extends LockError {
  override name = 'LockSelfDeadlockError';
  readonly code = 'LOCK_SELF_DEADLOCK';

  constructor(
    override readonly key: string,
    problem = 'is already held by this call, which would wait for itself. ' +
      'Set reentrant: true, or do not nest calls that lock the same key.',
  ) {
    super(`Lock ${quoted(key)} ${problem}`, 500, key);
  }

  /** Makes the error of a call that would wait until its own process stops leading. @internal */
  static underLeader(key: string): LockSelfDeadlockError {
    return new LockSelfDeadlockError(
      key,
      'is the lock of an election that this process leads: the call would wait until the process stops leading. ' +
        'Put the work of the leader under @LeaderOnly or @WhileLeader, or lock another key.',
    );
  }
}

/** The key is missing or invalid, so the method does not run. HTTP status 400 if the key comes from a request, otherwise 500. */
export class LockKeyError extends LockError {
  override name = 'LockKeyError';
  readonly code = 'LOCK_KEY';
  /**
   * The part of the request that is missing or cannot be used, as written in the key: `params.id`. Set only if a single part is
   * the cause.
   */
  readonly field?: string;

  constructor(message: string, status: 400 | 500 = 500, options?: { cause?: unknown; field?: string }) {
    super(message, status, undefined, options);
    this.field = options?.field;
  }
}

/**
 * The library was configured or called wrongly. The message says what was wrong, what it got and what it expects. HTTP status
 * 500.
 */
export class LockOptionsError extends LockError {
  override name = 'LockOptionsError';
  readonly code = 'LOCK_OPTIONS';

  constructor(message: string, options?: { cause?: unknown }) {
    super(message, 500, undefined, options);
  }
}
