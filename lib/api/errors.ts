import { inspect } from 'node:util';
import { describeHolder, type LockHolder } from './holder.js';

/** Stable machine-readable code of each error of this library. */
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
  /** The lease ran out without being extended, or it was gone from the store (deleted, flushed, evicted). */
  | 'expired'
  /** Another owner holds it. */
  | 'stolen'
  /** The store, or too many of its nodes, could not be reached until the deadline. */
  | 'unavailable'
  /** This process did not run until the deadline: blocked event loop, stopped, suspended. */
  | 'stalled'
  /** The application closed and the handler did not finish within `shutdownTimeoutMs`. */
  | 'shutdown'
  /** The lock was released by its own holder before it was asked. */
  | 'released';

/**
 * Base of all errors of this library. It has the form of the `http-errors` package (`status`, `statusCode`,
 * `expose: false`), so Nest's own exception filter answers with the right status and keeps the message, which names
 * keys, holders and nodes, out of the response.
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
    /** The key of the lock, where there is one. */
    readonly key?: string,
    options?: { cause?: unknown },
  ) {
    super(message, options);
    this.statusCode = status;
  }

  /** The fields that GraphQL servers show beside the message. */
  get extensions(): { code: LockErrorCode } {
    return { code: this.code };
  }
}

/**
 * Base of the errors of calls that were not given their lock. They are made when an answer or a timer comes, so their stacks
 * would be those of sockets and timers, as often as calls are refused. Printed they are one line: the message names all.
 */
export abstract class LockRefusal extends LockError {
  /** `Class.method` whose `@Locked` asked for the lock, where there is one: the message begins with it. */
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
  /** The holder, if it is known. */
  readonly holder?: LockHolder;
  /** How long the holder's lease still runs if it is not extended, in milliseconds; Infinity for a key without ttl. */
  readonly remainingMs?: number;
  /** When the lock is free again, by the clock of this process, if the holder's work has ended and it is kept for its `holdMs`. */
  readonly keptUntil?: Date;
  /** Set when the call did not wait, as this many calls of this process waited already. */
  readonly maxWaiters?: number;
  /** The keys of the locks that the refused call held meanwhile, the outermost first; by default none. */
  readonly holding?: readonly string[];
}

/** Another holder kept the lock for the whole `waitMs`. HTTP status 409. */
export class LockContendedError extends LockRefusal implements Contention {
  override name = 'LockContendedError';
  readonly code = 'LOCK_CONTENDED';
  /** How long this call waited, in whole milliseconds. */
  readonly waitedMs: number;
  readonly holder?: LockHolder;
  /** How long the holder's lease still runs if it is not extended, in whole milliseconds; Infinity for a key without ttl. */
  readonly remainingMs?: number;
  readonly keptUntil?: Date;
  readonly maxWaiters?: number;
  /** The keys of the locks that this call held meanwhile, by its async context, the outermost first; empty where it held none. */
  readonly holding: readonly string[];

  constructor(
    override readonly key: string,
    waitedMs: number,
    { holder, remainingMs, keptUntil, maxWaiters, holding = [] }: Contention = {},
  ) {
    const by = holder ? describeHolder(holder) : 'others';
    const more = remainingMs === Infinity ? 'without end' : `for another ${Math.round(remainingMs ?? 0)} ms`;
    const lease = remainingMs === undefined ? '' : ` (its lease runs ${more})`;
    const state = keptUntil
      ? `is kept until ${keptUntil.toISOString()} by the holdMs of ${by}`
      : `is held by ${by}${lease}`;
    const waited =
      maxWaiters === undefined
        ? `gave up after waiting ${Math.round(waitedMs)} ms. Raise waitMs`
        : `${maxWaiters} calls of this process are already waiting for it. Raise maxWaiters`;
    super(
      `Lock "${key}" ${state}; ${waited}, or ${keptUntil ? 'lower holdMs' : 'shorten the work under the lock'}. ` +
        'To do something else instead, use tryAcquire, or onContended of @Locked.' +
        whatItHeld(key, holding),
      409,
      key,
    );
    this.waitedMs = Math.round(waitedMs);
    this.holder = holder;
    if (remainingMs !== undefined) this.remainingMs = Math.round(remainingMs);
    if (keptUntil) this.keptUntil = keptUntil;
    this.maxWaiters = maxWaiters;
    this.holding = holding;
    withoutFrames(this);
  }
}

/** The sentence on the locks that a refused call held: its wait may have been one half of a deadlock. */
function whatItHeld(key: string, holding: readonly string[]): string {
  if (holding.length === 0) return '';
  const held = inWords(holding.map((each) => `"${each}"`));
  const [one, both] = holding.length === 1 ? [held, 'both'] : ['one of them', 'all'];
  return (
    ` This call held ${held} meanwhile: if the holder of "${key}" waits for ${one}, neither gets on; ` +
    `take ${both} at once with acquireAll.`
  );
}

/** The error of one node, which did not answer, or not as it should. Never holds credentials. */
export class NodeError extends Error {
  override name = 'NodeError';

  constructor(
    /** Name of the node, such as `host:port`. */
    readonly node: string,
    /** The problem there. */
    readonly problem: string,
    /** What to do, in sentences; by default to check that the node can be reached. */
    readonly advice?: string,
  ) {
    super(`${node}: ${problem}`);
    withoutFrames(this);
  }

  /** @internal */
  [inspect.custom](): string {
    return this.stack!;
  }
}

/** The store, or too many of its nodes, could not be asked. HTTP status 503. */
export class LockUnavailableError extends LockRefusal {
  override name = 'LockUnavailableError';
  readonly code = 'LOCK_UNAVAILABLE';

  constructor(
    message: string,
    key?: string,
    /** One cause for each node that did not answer as it should. */
    readonly causes: readonly NodeError[] = [],
  ) {
    super(message, 503, key, causes.length > 0 ? { cause: causes[0] } : undefined);
    withoutFrames(this);
  }

  /** The error of an operation on a lock that the nodes did not serve. @internal */
  static from(operation: string, key: string, causes: readonly NodeError[]): LockUnavailableError {
    return new LockUnavailableError(`Lock "${key}" could not be ${operation}: ${whyAndAdvice(causes)}`, key, causes);
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

/** `a`, `a and b`, `a, b and c`. */
function inWords(names: readonly string[]): string {
  return [names.slice(0, -1).join(', '), ...names.slice(-1)].filter(Boolean).join(' and ');
}

/** How the work under a lost lock ended. */
export type LockOutcome = { status: 'fulfilled'; value: unknown } | { status: 'rejected'; reason: unknown };

const LOST_BECAUSE: Record<LockLostReason, string> = {
  expired: 'its lease ended, or it was deleted from the store',
  stolen: 'another owner holds it',
  unavailable: 'it could not be extended before its deadline',
  stalled: 'this process was paused or blocked past its deadline',
  shutdown: 'the application closed before the work was done',
  released: 'it had already been released',
};

/**
 * The lock was held and is not any more: what ran under it may have overlapped with another holder. HTTP status 503.
 * Make late writes harmless by checking `fencingToken` at the resource.
 */
export class LockLostError extends LockError {
  override name = 'LockLostError';
  readonly code = 'LOCK_LOST';

  constructor(
    override readonly key: string,
    readonly reason: LockLostReason,
    /** How the work ended, when it had ended; with `onLost: 'reject'` its result or error is kept here. */
    readonly outcome?: LockOutcome,
    cause?: unknown,
  ) {
    super(
      `Lock "${key}" is no longer held (${reason}): ${LOST_BECAUSE[reason]}. ` +
        'Stop the work when lock.signal aborts, and check the fencing token where it writes.',
      503,
      key,
      cause === undefined ? undefined : { cause },
    );
  }
}

/**
 * A call would wait for itself: it holds a lock and asked for the same one with `reentrant: false`; or it would wait for the lock
 * of an election while its own process leads. HTTP status 500.
 */
export class LockSelfDeadlockError extends LockError {
  override name = 'LockSelfDeadlockError';
  readonly code = 'LOCK_SELF_DEADLOCK';

  constructor(
    override readonly key: string,
    problem = 'is already held by this call, which would wait for itself. ' +
      'Set reentrant: true, or do not nest calls that lock the same key.',
  ) {
    super(`Lock "${key}" ${problem}`, 500, key);
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

/**
 * No usable key could be made: the method does not run. HTTP status 400 where the key is made of a request,
 * otherwise 500.
 */
export class LockKeyError extends LockError {
  override name = 'LockKeyError';
  readonly code = 'LOCK_KEY';
  /** The part of the request that is missing or unfit, as the key has it: `params.id`. Only where one part alone is to blame. */
  readonly field?: string;

  constructor(message: string, status: 400 | 500 = 500, options?: { cause?: unknown; field?: string }) {
    super(message, status, undefined, options);
    this.field = options?.field;
  }
}

/** The library was set up or called wrongly: what was wrong, what was got, what is expected. HTTP status 500. */
export class LockOptionsError extends LockError {
  override name = 'LockOptionsError';
  readonly code = 'LOCK_OPTIONS';

  constructor(message: string, options?: { cause?: unknown }) {
    super(message, 500, undefined, options);
  }
}
