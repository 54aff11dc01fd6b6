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
   * It was taken by force, with `forceRelease`: by this process, or by another whose message this one heard. A holder that
   * hears no message learns of it when it extends the lease: `expired`, or `stolen` if the lock has another owner by then.
   */
  | 'forced'
  /** The store, or too many of its nodes, could not be reached until the deadline. */
  | 'unavailable'
  /** This process did not run until the deadline: blocked event loop, stopped, suspended. */
  | 'stalled'
  /** Its work held it for longer than `maxHoldMs`. Other calls get it when the work has ended, or when the lease has. */
  | 'overstayed'
  /** The application closed and the handler did not finish within `shutdownTimeoutMs`. */
  | 'shutdown'
  /** Its own holder had already released the lock. */
  | 'released';

/**
 * Base class of all errors of this library. It has the same properties as errors of the `http-errors` package (`status`,
 * `statusCode`, `expose: false`). So Nest's own exception filter answers with the right status, and keeps the message, which
 * names keys, holders and nodes, out of the response.
 */
export abstract class LockError extends Error {
  // A literal in each class: names that are taken from classes are lost when a bundler shortens those.
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
    // The text may hold what strangers wrote, and no template has made printable.
    super(printable(message, Infinity), options?.cause === undefined ? undefined : options);
    this.statusCode = status;
  }

  /** The fields that GraphQL servers show beside the message. */
  get extensions(): { code: LockErrorCode } {
    return { code: this.code };
  }
}

/**
 * Base class of the errors of calls that did not get their lock. They are created when an answer arrives or a timer fires, so
 * their stacks would only show sockets and timers. That is why they print as one line: the message has all details.
 */
export abstract class LockRefusal extends LockError {
  /** The `Class.method` whose `@Locked` or `@Limited` asked for the lock, if there is one. The message begins with it. */
  readonly method?: string;

  /** Names the method whose call was refused. @internal */
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

/** What is known of a lock that others hold. */
export interface Contention {
  /** The holder, if it is known; one of them where several hold the lock. */
  readonly holder?: LockHolder;
  /** How many hold the lock beside `holder`, if that is known. */
  readonly others?: number;
  /**
   * How much longer the holder's lease runs if it is not extended, in milliseconds; Infinity for a key without a ttl. Where several hold the
   * lock: until the first of their leases ends, or for an exclusive lock, which has to wait for all of them, the last one.
   */
  readonly remainingMs?: number;
  /** When the lock is free again, by the clock of this process, if the holder's work has ended and it is kept for its `holdMs`. */
  readonly keptUntil?: Date;
  /** Set if the call did not wait because this many calls of this process were already waiting. */
  readonly maxWaiters?: number;
  /** How many permits the call asked for; `undefined` for a lock. */
  readonly permits?: number;
  /** The keys of the locks that the refused call held while it waited, the outermost first; by default none. */
  readonly holding?: readonly string[];
  /** Whether the holder is known to be this process. @internal */
  readonly isOwn?: boolean;
  /** Why the lock is still there, although this process has given it back. @internal */
  readonly unreleased?: NodeError;
}

/** What is known of the lock, with times in whole milliseconds. */
export interface LockContendedError extends Contention {} // oxlint-disable-line typescript/no-unsafe-declaration-merging -- all is optional

/** Another holder kept the lock for the whole `waitMs`. HTTP status 409. */
export class LockContendedError extends LockRefusal {
  override name = 'LockContendedError';
  readonly code = 'LOCK_CONTENDED';
  /** How long this call waited, in whole milliseconds. */
  readonly waitedMs: number;
  /** The keys of the locks that this call held while it waited, by its async context, the outermost first; empty if it held none. */
  readonly holding: readonly string[];

  constructor(
    override readonly key: string,
    waitedMs: number,
    contention: Contention = {},
  ) {
    // Not in the signature: the declarations that are published would name what they do not have.
    const { isOwn = false, others = 0, holding = [], unreleased, ...known } = contention;
    const { holder, remainingMs, keptUntil, maxWaiters, permits } = known;
    const by = holder ? describeHolders(holder, others) + (isOwn ? ', which is this process' : '') : 'others';
    const more = remainingMs === Infinity ? 'without end' : `for another ${Math.round(remainingMs ?? 0)} ms`;
    const lease =
      remainingMs === undefined ? '' : ` (${others > 0 ? 'one of their leases' : 'its lease'} runs ${more})`;
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
        whatItHeld(key, holding, permits !== undefined) +
        (unreleased
          ? ` This process has given the lock back, and that was not confirmed: ${whyAndAdvice([unreleased])}`
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

/** The subject of the sentence on who holds it. A lock that is exclusive, or shared, leaves no permits free either. */
function subjectOf(key: string, permits: number | undefined): string {
  if (permits === undefined) return `Lock ${quoted(key)}`;
  return `${describePermits(key, permits)} ${permits === 1 ? 'is' : 'are'} not free: the lock`;
}

/** The sentence on the locks that a refused call held: its wait may have been one half of a deadlock. */
function whatItHeld(key: string, holding: readonly string[], isForPermits: boolean): string {
  if (holding.length === 0) return '';
  const held = inWords(holding.map(quoted));
  const [one, both] = holding.length === 1 ? [held, 'both'] : ['one of them', 'all'];
  return (
    ` This call held ${held} meanwhile: if the holder of ${quoted(key)} waits for ${one}, neither can continue; ` +
    `take ${both} ${isForPermits ? 'in the same order everywhere' : 'at once with acquireAll'}.`
  );
}

/** How much of an answer of a server an error shows, in characters. */
const LONGEST_PROBLEM = 500;

/** The error of one node that did not answer, or gave an unexpected answer. Never contains credentials. */
export class NodeError extends Error {
  override name = 'NodeError';
  /** The problem there, as one line, cut where a server answered with a longer text. */
  readonly problem: string;

  constructor(
    /** Name of the node, such as `host:port`. */
    readonly node: string,
    problem: string,
    /** What to do, in sentences; by default to check that the node can be reached. */
    readonly advice?: string,
    /** Whether only this key, or this call, is refused: the node serves others. */
    readonly isOfKey = false,
    /** The error that a store of your own has thrown. */
    cause?: Error,
  ) {
    const shown = printable(problem, LONGEST_PROBLEM);
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

  /** The error of an operation on a lock that the nodes did not serve. @internal */
  static from(operation: string, key: string, causes: readonly NodeError[]): LockUnavailableError {
    return new LockUnavailableError(
      `Lock ${quoted(key)} could not be ${operation}: ${whyAndAdvice(causes)}`,
      key,
      causes,
    );
  }

  /** The error of a list that the nodes did not serve. @internal */
  static ofList(causes: readonly NodeError[]): LockUnavailableError {
    return new LockUnavailableError(`The locks could not be listed: ${whyAndAdvice(causes)}`, undefined, causes);
  }
}

function whyAndAdvice(causes: readonly NodeError[]): string {
  const nodes = causes.map((cause) => cause.message).join('; ') || 'no node answered';
  return `${nodes}. ${adviceFor(causes)}`;
}

/** The advice of these problems, each once. */
export function adviceFor(causes: readonly NodeError[]): string {
  const silent = new Set(causes.filter(({ advice }) => advice === undefined).map(({ node }) => node));
  const advice = new Set(causes.flatMap((cause) => cause.advice ?? []));
  if (silent.size > 0) advice.add(`Check that ${inWords([...silent])} can be reached.`);
  else if (causes.length === 0) advice.add('Check that its nodes can be reached.');
  return [...advice].join(' ');
}

/** How the work under a lost lock ended. */
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
 * The lock was held and is not any more: what ran under it may have overlapped with another holder. HTTP status 503; 409 for a
 * parcel whose lock has ended, as nothing ran.
 * Make late writes harmless by checking `fencingToken` at the resource.
 */
export class LockLostError extends LockError {
  override name = 'LockLostError';
  readonly code = 'LOCK_LOST';

  constructor(
    override readonly key: string,
    readonly reason: LockLostReason,
    /** How the work ended, if it has ended: with `onLost: 'reject'`, its result or error is here. */
    readonly outcome?: LockOutcome,
    cause?: unknown,
    explanation = `${LOST_BECAUSE[reason]}. Stop the work when lock.signal aborts, and check the fencing token where it writes.`,
    status: 409 | 503 = 503,
  ) {
    super(`Lock ${quoted(key)} is no longer held (${reason}): ${explanation}`, status, key, { cause });
  }

  /** The error of permits, which have no fencing token. @internal */
  static ofPermits(key: string, reason: LockLostReason, outcome?: LockOutcome, cause?: unknown): LockLostError {
    const explanation = `${LOST_BECAUSE[reason]}. Stop the work when permit.signal aborts: permits have no fencing token that could stop it.`;
    return new LockLostError(key, reason, outcome, cause, explanation);
  }

  /** The error of a parcel whose lock is not there any more. @param digest that of the parcel, whose owner value is a secret @internal */
  static ofParcel(key: string, reason: 'expired' | 'stolen', digest: string): LockLostError {
    const explanation =
      reason === 'stolen'
        ? `the parcel ${digest} was adopted before, or its lock has ended and another owner has it now. One call can adopt a parcel: ` +
          'do not repeat the work, or acquire the lock anew for it.'
        : `the lock of the parcel ${digest} has ended, or was released. If the work is still to do, acquire the lock again; detach it with a longer ttlMs.`;
    return new LockLostError(key, reason, undefined, undefined, explanation, 409);
  }
}

/**
 * A call would wait for itself: it holds a lock and asked for the same one with `reentrant: false`, or it would wait for the
 * lock of an election that its own process leads. HTTP status 500.
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

  /** The error of a call that would wait until its own process leads no more. @internal */
  static underLeader(key: string): LockSelfDeadlockError {
    return new LockSelfDeadlockError(
      key,
      'is that of an election, and this process leads: the call would wait for as long as it does. ' +
        'Put work of the leader under @LeaderOnly or @WhileLeader, or lock another key.',
    );
  }
}

/** No usable key could be made, so the method does not run. HTTP status 400 if the key comes from a request, otherwise 500. */
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
