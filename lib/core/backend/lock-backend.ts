import type { NodeError } from '../../api/errors.js';
import type { LockMode } from '../../api/lock.js';
import type { ListOptions } from '../../api/options.js';
import type { BackendPing, BackendReport } from './report.js';

/** The longest ttl that a lock can have, in milliseconds. */
export const LONGEST_TTL_MS = 86_400_000;

/** How a call wants to hold a lock. A holder in one mode excludes all calls that want another mode of the key. */
export type Hold =
  /** One holder. */
  | { readonly mode: 'exclusive' }
  /** Several holders share it. All of them have one fencing token, which the store minted for the first of them. */
  | { readonly mode: 'shared' }
  /** Several holders, as long as their permits together are within the smallest limit that one of them names. */
  | {
      readonly mode: 'permits';
      /** How many it takes: 1 to `limit`. */
      readonly permits: number;
      readonly limit: number;
    };

export const EXCLUSIVE: Hold = { mode: 'exclusive' };
export const SHARED: Hold = { mode: 'shared' };

/** The request of one attempt. */
export interface AcquireRequest {
  readonly key: string;
  /** A store that does not know the mode answers `unavailable`, with its own message. */
  readonly hold: Hold;
  /**
   * Identifies the holder. Each attempt has its own value; only an attempt that is repeated, because it may have run, keeps its value. With a
   * place in a queue that hands over, the value is the ticket of that place.
   */
  readonly owner: string;
  readonly ttlMs: number;
  /**
   * Permits only: the owner values of further calls of this process, each of which wants the same number of permits. The store grants them
   * together with the first one, in this order, while permits are free and the queue is empty. They never wait in the queue.
   */
  readonly others?: readonly string[];
  /** Its place in the wait queue if the lock is not free; the line has to `leave` it. Only for a backend with a wait queue. */
  readonly place?: Place;
  /**
   * Exclusive only: how many fencing tokens the store mints, for calls of this process that get the lock one after the other. 1 to 101; 1 if
   * undefined. A store may always mint a single one: then the process does not pass the lock on. `Place.turns` has the number that the first
   * attempt with the place requested.
   */
  readonly turns?: number;
  /** Whether the store leaves a free lock to the queue. Only for a store that hands locks over. */
  readonly inOrder?: boolean;
  /** The line that asks. The backend need not send an attempt that waits in this process and is no longer wanted. */
  readonly asker?: { readonly isWanted: boolean };
}

/** A grant. The backend makes it, may add fields of its own, and gets it back unchanged. */
export interface Grant {
  readonly key: string;
  readonly owner: string;
  /** How the lock is held; exclusive if undefined. */
  readonly hold?: Hold;
  /** Larger for each later holder. Undefined for permits: several calls hold them at the same time. */
  readonly fencingToken?: number;
  /** The last token that was minted for this grant; undefined if it is the only one. */
  readonly lastToken?: number;
  /** No call that was in the queue at the time of the grant came earlier than this, by the monotonic clock. Undefined: unknown. */
  readonly nobodyBefore?: number;
}

/** The request of one extension. */
export interface ExtendRequest {
  readonly grant: Grant;
  /** How long the lock lasts from now on, in milliseconds. */
  readonly ttlMs: number;
  /** The calls that wait behind an exclusive lock, for a store that can show them. Undefined: none. */
  readonly waiting?: CallsBehind;
}

/** The calls of a process that wait for its own exclusive lock, and have no place in the queue. The store only shows them. */
export interface CallsBehind {
  /** Their number: 1 or more. */
  readonly calls: number;
  /** For how long the store shows them, in milliseconds: no message reports that they are gone. */
  readonly forMs: number;
}

/** How a lock is released. */
export interface Releasing {
  /**
   * The store keeps the lock until then, by the monotonic clock; then the lock expires. While the store keeps the lock, nobody can acquire or
   * extend it, not even its owner. `inspect` shows it as kept, and `forceRelease` can take it. If the time has passed when the command is sent,
   * the lock is released as usual.
   */
  readonly keepUntil?: number;
}

/** A statement that the work sends to the store itself, in the transaction of its writes. */
export interface GuardStatement {
  /** A word that the store and its resource agree on. */
  readonly dialect: string;
  readonly text: string;
  readonly values: (string | number)[];
}

/** The operation failed, or the store did not confirm it. */
export interface Unavailable {
  status: 'unavailable';
  causes: NodeError[];
}

/** The answer to one attempt. Contention and faults are values: the engine decides what follows. */
export type AcquireOutcome =
  | {
      status: 'acquired';
      grant: Grant;
      /** The grants of `others`, as many as were granted, in their order. */
      others?: readonly Grant[];
      /** Permits only: the smallest limit that a holder names, if that is smaller than the limit of the request. */
      smallerLimit?: number;
      /** When the successful command was about to be sent, by the clock of the service: the lease begins then. */
      sentAt: number;
    }
  | {
      status: 'contended';
      /** The owner value of a holder; undefined if other calls are in the way, but none of them holds the lock. */
      owner?: string;
      /** How many others hold the lock too, if the store knows. */
      others?: number;
      /**
       * How long the lease of the holder still runs, in milliseconds; with several holders, the shortest time. **Undefined: nobody won**, for example
       * because the nodes of a Redlock were divided. Then the process asks again after a few round trips. A store that knows a holder gives at
       * least an estimate.
       */
      remainingMs?: number;
      /** Permits only: the smallest limit that a holder names, if that is smaller than the limit of the request. */
      smallerLimit?: number;
      /** Whether the store keeps the lock although the work of its owner has ended. */
      isKept?: boolean;
      /** Whether the attempt now has a place in the queue. */
      queued: boolean;
      /** A note of the store about that place: the next attempt passes it back unchanged, as `Place.hint`. */
      hint?: object;
    }
  | Unavailable;

export type ExtendOutcome =
  | { status: 'extended'; sentAt: number }
  /** The lock is certainly not held any more. */
  | { status: 'lost'; reason: 'expired' | 'stolen' }
  | Unavailable;

/** The request to change the owner value of a lock, and with it the holder. */
export interface Transfer {
  readonly key: string;
  /** The owner value that the lock must have. */
  readonly from: string;
  /** The new owner value. No other request has it. */
  readonly to: string;
  /** How long the lock lasts from now on, in milliseconds. */
  readonly ttlMs: number;
  /** Whether the lock keeps its remaining time if that is longer than `ttlMs`. @default false */
  readonly atLeast?: boolean;
  /** Whether the store mints a fencing token for the new owner. If not, the lock keeps its token. */
  readonly mints: boolean;
  /**
   * How the new owner holds the lock. If shared, the calls at the head of the queue that want a shared lock get it, too. The old owner always
   * holds it exclusively. @default exclusive
   */
  readonly hold?: Hold;
}

export type TransferOutcome =
  | {
      status: 'transferred';
      /** The new grant, with the current token of the lock. */
      grant: Grant;
      /** When the command was about to be sent, by the clock of the service. */
      sentAt: number;
    }
  /** The lock has neither of the owner values, or is kept. */
  | { status: 'lost'; reason: 'expired' | 'stolen' }
  | (Unavailable & {
      /** Whether it may have taken effect, or may still do so. */
      mayHaveRun: boolean;
    });

export type ReleaseOutcome =
  | { status: 'released' }
  /**
   * This owner did not have the lock any more. That counts as a loss, and is logged. So a store that repeats a release by itself, and then finds
   * nothing, has to answer `released`.
   */
  | { status: 'gone' }
  /** The store has not confirmed it. The backend repeats it until the store does, or the lock has ended by itself. */
  | Unavailable;

/** One holder of a lock, as far as the backend knows. */
export interface Holder {
  owner: string;
  remainingMs: number;
  fencingToken?: number;
  /** For how long it has held the lock, in milliseconds; undefined if that is unknown. */
  heldForMs?: number;
  /** Whether the store keeps the lock: the work of this owner has ended, but the time of `keepUntil` has not. */
  isKept?: boolean;
  /** Permits only: how many it has, and the limit that it names. */
  permits?: number;
  limit?: number;
  /** The last `CallsBehind.calls` that this owner reported; undefined if it reported none, or if `forMs` is over. */
  calls?: number;
}

/**
 * When a kept lock is free again, by the wall clock of this process. Undefined for a lock that is held, and for a lock whose ttl
 * was removed by hand.
 */
export function keptUntil({ isKept, remainingMs }: Partial<Holder>): Date | undefined {
  return isKept && Number.isFinite(remainingMs) ? new Date(Date.now() + remainingMs!) : undefined;
}

/** A held lock, as far as the backend knows. */
export interface Holding {
  /** Exclusive if undefined. */
  mode?: LockMode;
  /** An exclusive lock has one holder. */
  holders: readonly [Holder, ...Holder[]];
  /** The places in its queue, in order. Undefined if the store has no queue, or shows no places. */
  waiting?: readonly Waiting[];
}

/** A place in the queue of a lock, as the store shows it. */
export interface Waiting {
  readonly ticket: string;
  /** The last `Place.calls` that its process reported; undefined if it reported none. */
  readonly calls?: number;
}

/** A bound for the times that calls ask for. */
export interface Bound {
  readonly ms: number;
  /** Why the bound exists, and what to do: sentences for the error of a call that asks for a time out of bounds. */
  readonly because: string;
}

/** Bounds of the store, in addition to the bounds of the library. */
export interface Bounds {
  /** The shortest ttl that the store can extend in time. */
  readonly shortestTtlMs?: Bound;
  /** The longest ttl, and the longest time for which the store can keep a lock. */
  readonly longestMs?: Bound;
}

/** The request of a list of locks. */
export type ListRequest = Readonly<Required<ListOptions>>;

/** The locks of a list. */
export interface Listed {
  /** In any order, each key once, and no more than the limit of the request. */
  locks: { key: string; holding: Holding }[];
  /** Whether these are all locks that match: neither the limit nor the budget has ended the search. */
  complete: boolean;
  /** Approximate number of keys that the search has read in the store. */
  scanned: number;
}

/** The result of a forced release. */
export interface Taken {
  /** The owner values that certainly do not hold the lock any more. */
  from: string[];
}

/**
 * Holds locks in a store, one attempt at a time. It does not wait for a lock, and knows nothing of leases, calls or Nest. If the store does not
 * answer, each method settles within the time limit of the backend. If the store is busy, it settles when the store has answered. The backend
 * undoes an attempt that it gives up.
 *
 * A method throws, or rejects, only where its comment says so. `acquire`, `extend` and `release` take a callback. They call it once, after the
 * method has returned, and in the order in which the store answered: promises would not keep that order (docs/adr/0017-batches.md).
 * `fromPromises` makes a backend from a `PromiseBackend`.
 */
export interface LockBackend {
  // The operations on one lock.

  /**
   * Tries once to take a lock, in one atomic step. What the step promises:
   * - Other holders exclude the attempt until their time is over by the clock of the store. A kept lock excludes everybody, even its owner.
   * - A request with the same owner value is the same attempt: the store grants it again, and its ttl starts again.
   * - Fencing tokens grow for each key, even after a lock has expired or was deleted.
   * - After `unavailable` nothing stays behind: if the attempt may have run, the backend releases it in the background.
   * - `sentAt` is a time on the clock of the service: the `now` that the backend was made with, or `monotonic`.
   */
  acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void;
  /** Takes any grant: another process may have made it. */
  extend(request: ExtendRequest, done: (outcome: ExtendOutcome) => void): void;
  /**
   * Takes any grant, like `extend`. The backend repeats a release in the background until the store confirms it, or the lock has ended by itself.
   * `released` means: the store has released the lock, or keeps it until `keepUntil`.
   */
  release(grant: Grant, how: Releasing, done: (outcome: ReleaseOutcome) => void): void;

  // For operators, and for errors.

  /** @throws LockUnavailableError */
  inspect(key: string): Promise<Holding | undefined>;
  /**
   * Finds the locks of all holders. It must not delay other operations. It must not leave out locks because a server did not answer.
   * @throws LockUnavailableError
   */
  list(request: ListRequest): Promise<Listed>;
  /**
   * Takes a lock from its holder.
   * @param from the only owner that it may be taken from; undefined: any owner
   * @returns undefined when the lock had no holder, or another holder
   * @throws LockUnavailableError
   */
  forceRelease(key: string, from?: string): Promise<Taken | undefined>;
  /**
   * Asks each server once whether it answers. It uses the connections of the locks, and opens none: health checks call it every few seconds.
   * It takes at most the time limit of one command. Never rejects.
   */
  ping(): Promise<BackendPing>;
  /** Checks each server once, for at most `timeoutMs`. Never rejects. */
  report(timeoutMs: number): Promise<BackendReport>;
  /** A key that users never lock, on the server of the given key: for a test of whether locks can be taken. */
  probeKey(key: string): string;
  /**
   * The known problems of the nodes that delay an attempt for this key.
   * @param silence the problem of a node that is connected, but has not answered
   */
  problems(silence: string, key: string): NodeError[];
  /** Why a released lock of this owner value may still be in the store. Undefined: nothing is known about it. */
  unreleased?(owner: string): NodeError | undefined;

  // Its life.

  /**
   * Waits until locks can be taken.
   * @returns the problems of nodes that this does not need
   * @throws LockUnavailableError after `timeoutMs`, naming the nodes
   */
  connect(timeoutMs: number): Promise<NodeError[]>;
  /**
   * `Transfers` of the engine sets it. The backend calls it when the store can be reached again, so that the engine repeats failed transfers at
   * once. A backend that cannot know this, such as one made by `fromPromises`, never calls it: the engine also repeats them after pauses.
   */
  onReachable?: () => void;
  /** Called before the last attempts of a closing application: the backend sends them even if earlier commands are unanswered. */
  insist?(): void;
  /** Repeats unconfirmed releases one last time, and closes the connections that the backend opened. */
  close(): Promise<void>;

  // Its limits and capabilities.

  readonly bounds: Bounds;
  /**
   * The longest time of an attempt to acquire, in milliseconds, unless it has to wait for other operations. It is the time limit of a call that
   * does not wait for its lock.
   */
  attemptTimeoutMs(): number;
  /** Whether it sends its commands only at the end of the current turn of the event loop. @default at once */
  readonly sendsLater?: boolean;
  /** A capability: the modes in which it holds locks, besides `exclusive`. */
  readonly modes?: readonly LockMode[];
  /** Why it holds locks in no other mode, and what to do: sentences for the error of a call that asks for another mode. */
  readonly whyOnlyExclusive?: string;
  /**
   * A capability: a transaction of the store keeps the locks until it ends, even if their leases end. The statement fails if another process has
   * one of the locks by then. The store does not confirm a release before the transaction has ended.
   * @param passedOnForMs how long ago this process last passed one of the locks on, which the store does not know; Infinity: it passed none on
   */
  guard?(grants: readonly Grant[], passedOnForMs?: number): GuardStatement;
  /**
   * A capability: changes the holder of a lock in one step. The request can run twice. A lock that has the new owner value already counts as
   * transferred, restarts its ttl (see `atLeast`), and keeps its token. The queue does not change. Never rejects.
   */
  transfer?(request: Transfer): Promise<TransferOutcome>;
  /** Why there is no `transfer`, and what to do: sentences for the error of a call that needs it. */
  readonly whyNoTransfer?: string;
  /** A capability: lines have places in a queue of the store. Without it they ask again after pauses that grow. */
  readonly waitQueue?: WaitQueue;
  /**
   * A capability of a backend without a wait queue, if an attempt for many locks costs little more than an attempt for one. After a while, all
   * lines of a process ask at the same times: this is the period, in milliseconds. Without it, each line asks after its own pauses.
   */
  readonly pollEveryMs?: number;
  /**
   * A capability: `release` and `acquire` in one step, so that the process is never absent from the queue. It is sent with the releases. If the
   * attempt is not wanted any more by then, the lock is only released. Both are for the same mode.
   */
  releaseAndAcquire?(
    grant: Grant,
    released: (outcome: ReleaseOutcome) => void,
    request: AcquireRequest,
    done: (outcome: AcquireOutcome) => void,
  ): void;
}

/** A place in the queue of a lock. Ticket, hold and turns are the same in all attempts with it: the store finds its entry by them. */
export interface Place {
  /** If the store hands locks over, it is also the owner value of the attempt. */
  readonly ticket: string;
  readonly hold: Hold;
  /** How many calls of this process get the lock, one after the other, when the store hands it over. */
  readonly turns: number;
  /** How many calls of this process wait for the key now, in all modes. The store only shows it. */
  readonly calls: number;
  /** When this place counts as taken, by the monotonic clock. The store serves places in this order, as far as the clocks allow. */
  readonly arrivedAt: number;
  /** Whether an earlier attempt has taken this place. */
  readonly isTaken: boolean;
  /** The `hint` of the last answer. */
  readonly hint?: object;
}

/** A lock that was handed over to a ticket. It is soon free again unless it is extended. */
export interface HandOver {
  /** How long it lasts, in milliseconds, counted from a time after the first attempt with this ticket. */
  readonly ttlMs: number;
  /**
   * @param key the key of the lock
   * @param place the place of the ticket, with the hint of the last answer
   * @returns the grant, and the earliest time at which it can have been made, by the clock of the service. Undefined if that time is not
   *   certain, or the message may be forged: then the line has to ask
   */
  grantOf(key: string, place: Place): { readonly grant: Grant; readonly sentAt: number } | undefined;
}

/** The queues that a store keeps for its locks. */
export interface WaitQueue {
  /** Whether a release hands the lock over to the first place in the queue. If not, it only wakes that line, which then asks. */
  readonly handsOver: boolean;
  /** False if the store wakes waiting processes without knowing them: then it shows none. @default true */
  readonly keepsPlaces?: boolean;
  /** Whether the listener will be called when the turn of a place for this key comes. */
  isListening(key: string): boolean;
  /** Begins to listen for turns of this key, unless it does already. The listener is the same in all calls. */
  listen(key: string, listener: WaitListener): void;
  /** Checks that messages about this key still arrive. Called when an expected message has not come. */
  checkListening(key: string): void;
  /** The error bound of the server clocks that order the calls, in milliseconds; undefined if they are unknown. */
  clockErrorMs?(): number | undefined;
  /** Gives up a place, and the lock if the store has handed it over to the place. */
  leave(key: string, place: Place): void;
  /**
   * A capability of a queue that hands over: releases a lock that was handed over to a ticket that no line has. A kept lock stays.
   */
  decline?(key: string, ticket: string): void;
}

/** Hears from a wait queue, but never within a call of that queue. */
export interface WaitListener {
  /**
   * The turn of a ticket may have come. Without a ticket: of all tickets, because listening has begun, or was interrupted.
   * @param handOver the lock that was handed over to the ticket: its holder has to extend it at once
   * @param key the key of the lock if it was handed over, even if there is no usable `handOver`
   */
  onTurn(ticket?: string, handOver?: HandOver, key?: string): void;
  /** The lock of this key may be free for any of its places: a release was heard, or may have been missed before listening began. */
  onMayBeFree(key: string): void;
  /** Another process may have taken the lock by force from this owner value. */
  onTaken(key: string, owner: string): void;
  /** Waiting is slower than it could be, for a reason that an operator should know. Reported once. */
  onWarning(message: string): void;
}
