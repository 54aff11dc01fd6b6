import type { NodeError } from '../../api/errors.js';
import type { LockMode } from '../../api/lock.js';
import type { ListOptions } from '../../api/options.js';
import type { BackendPing, BackendReport } from './report.js';

/** The longest ttl that a lock can have, in milliseconds. */
export const LONGEST_TTL_MS = 86_400_000;

/** How a lock is to be held. Who holds it in one mode excludes all who want it in another: there is one key space. */
export type Hold =
  /** Beside no other. */
  | { readonly mode: 'exclusive' }
  /** Beside others that share it. All of them have one fencing token, minted when the first of them came. */
  | { readonly mode: 'shared' }
  /** Beside others, as long as the permits of all together are within the smallest limit that any of them names. */
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
  /** What a store cannot hold it refuses itself: `unavailable`, with a sentence of its own. */
  readonly hold: Hold;
  /**
   * Marks the holder: every attempt has one of its own, except that an attempt which may have run is sent again with the same.
   * With a place in a queue that hands over, it is the ticket of that place.
   */
  readonly owner: string;
  readonly ttlMs: number;
  /**
   * Permits only: owner values for more calls of this process that want as many each. They are granted beside the first one, in this order,
   * as far as there is room, and only where nobody waits in the queue; they never wait themselves.
   */
  readonly others?: readonly string[];
  /** Where it waits if the lock is not free: only for a backend with a wait queue, and its owner has to `leave` that. */
  readonly place?: Place;
  /**
   * Exclusive only: for how many turns of calls of this process so many fencing tokens are minted, one after the other: 1 to 1,001. 1 if undefined.
   * A store may mint one all the same; then the process passes the lock on to none of its calls.
   */
  readonly turns?: number;
  /** Do not take a free lock past the queue. Only where locks are handed over. */
  readonly inOrder?: boolean;
  /** Who asks. An attempt that waits in this process, and is not wanted any more when its turn comes, need not be sent. */
  readonly asker?: { readonly isWanted: boolean };
}

/** A grant: made by the backend, which may keep notes of its own in it, and given back to it as it is. */
export interface Grant {
  readonly key: string;
  readonly owner: string;
  /** How it is held; exclusive if undefined. */
  readonly hold?: Hold;
  /** Greater for each later holder. Undefined where holders are not exclusive, so that none is the later one. */
  readonly fencingToken?: number;
  /** The last of the tokens that were minted for holders in turn; undefined if it is the same. */
  readonly lastToken?: number;
  /** Nobody who waited in the queue when it was made came earlier than this, by the monotonic clock. Undefined: not known. */
  readonly nobodyBefore?: number;
}

/** A grant that is to be extended. */
export interface ExtendRequest {
  readonly grant: Grant;
  /** How long the lock is to stand from now on, in milliseconds. */
  readonly ttlMs: number;
  /** The calls that wait behind an exclusive lock, for a store that can show them. Undefined: none. */
  readonly waiting?: CallsBehind;
}

/** The calls of a process that wait behind its own exclusive lock, and have no place in the queue. The store decides nothing by them. */
export interface CallsBehind {
  /** How many they are: 1 or more. */
  readonly calls: number;
  /** For how long the store shows them, in milliseconds. Nobody tells it when they are gone. */
  readonly forMs: number;
}

/** How a lock is released. */
export interface Releasing {
  /**
   * Until when, by the monotonic clock, the lock is kept instead of given back; then it ends by itself. While it is kept nobody is
   * granted it, not even its owner, who cannot extend it either; it is shown as kept, and can be taken by force. If that
   * time has passed when the command is sent, the lock is given back as usual.
   */
  readonly keepUntil?: number;
}

/** A statement that the work sends to the store itself, in the transaction that its writes are in. */
export interface GuardStatement {
  /** A word that the store and its resource agree on. */
  readonly dialect: string;
  readonly text: string;
  readonly values: (string | number)[];
}

/** It was not done, or not confirmed. */
export interface Unavailable {
  status: 'unavailable';
  causes: NodeError[];
}

/** The answer to one attempt. Contention is a value, and so is a fault: the engine decides what to make of it. */
export type AcquireOutcome =
  | {
      status: 'acquired';
      grant: Grant;
      /** Those of the first of its `others`. */
      others?: readonly Grant[];
      /** Of permits: the smallest limit that a holder names, where that is smaller than its own. */
      smallerLimit?: number;
      /** When the command that won was about to be sent, by the clock of the service: the lease counts from here. */
      sentAt: number;
    }
  | {
      status: 'contended';
      /** Owner value of the holder, or of one of several; undefined when others are in the way, but none of them holds it. */
      owner?: string;
      /** How many hold it beside that owner, where the store tells. */
      others?: number;
      /**
       * How long the lease of the holder still runs, or the first one of several to end. Undefined: nobody won, as where voters were divided, so
       * the process asks again after a few round trips. A store that knows a holder says how long, if only about.
       */
      remainingMs?: number;
      /** Of permits: the smallest limit that a holder names, where that is smaller than its own. */
      smallerLimit?: number;
      /** The lock is kept: the work of its owner has ended. */
      isKept?: boolean;
      /** Whether it has a place in the queue now. */
      queued: boolean;
      /** What the store notes about that place, for itself: it comes back with the place, unchanged. */
      hint?: object;
    }
  | Unavailable;

export type ExtendOutcome =
  | { status: 'extended'; sentAt: number }
  /** Definitely not held any more. */
  | { status: 'lost'; reason: 'expired' | 'stolen' }
  | Unavailable;

/** A lock that gets another owner value, and with it another holder, if it has a certain one. */
export interface Transfer {
  readonly key: string;
  /** The owner value that it has. */
  readonly from: string;
  /** The one that it gets. No other request has it. */
  readonly to: string;
  /** How long the lock is to stand from now on, in milliseconds. */
  readonly ttlMs: number;
  /** Whether it stands for longer than `ttlMs` if more time was left: until it is extended, or transferred again. @default false */
  readonly atLeast?: boolean;
  /** Whether a fencing token is minted for the new owner; if not, the lock keeps the one that it has. */
  readonly mints: boolean;
  /**
   * How the new owner holds it: shared where the store has that mode, so that whoever waits to share it gets it, too. The old owner holds it
   * exclusively in any case. @default exclusive
   */
  readonly hold?: Hold;
}

export type TransferOutcome =
  | {
      status: 'transferred';
      /** With the token that the lock has now. */
      grant: Grant;
      /** As of a grant that is acquired. */
      sentAt: number;
    }
  /** It has neither of the owner values, or is kept. */
  | { status: 'lost'; reason: 'expired' | 'stolen' }
  | (Unavailable & {
      /** It may have taken, or may yet take, effect. */
      mayHaveRun: boolean;
    });

export type ReleaseOutcome =
  | { status: 'released' }
  /**
   * It was not this owner's any more: that counts as a loss, and is logged. So a store that sends a release again by itself, and finds
   * nothing, has to answer `released`.
   */
  | { status: 'gone' }
  /** Not confirmed; the backend repeats it until it is, or the lock has ended by itself. */
  | Unavailable;

/** One who holds a lock, as far as the backend knows it. */
export interface Holder {
  owner: string;
  remainingMs: number;
  fencingToken?: number;
  /** For how long it is held; undefined when that is unknown. */
  heldForMs?: number;
  /** It is kept: the work of its owner has ended, and it stands until its time is over. */
  isKept?: boolean;
  /** Of permits: how many it has, and the limit that it named. */
  permits?: number;
  limit?: number;
  /** `CallsBehind.calls`, as it was last told by this owner; undefined where it was not, or too long ago. */
  calls?: number;
}

/**
 * When a lock that is kept is free again, by the wall clock of this process. Undefined for one that is held, or whose end is not
 * known: its ttl may have been taken away by hand.
 */
export function keptUntil({ isKept, remainingMs }: Partial<Holder>): Date | undefined {
  return isKept && Number.isFinite(remainingMs) ? new Date(Date.now() + remainingMs!) : undefined;
}

/** A held lock, as far as the backend knows it. */
export interface Holding {
  /** Exclusive if undefined. */
  mode?: LockMode;
  /** An exclusive lock has one. */
  holders: readonly [Holder, ...Holder[]];
  /** The places in its queue, in order, as far as the store shows them. Without a queue: nobody knows, unless it is empty. */
  waiting?: readonly Waiting[];
}

/** A place in the queue of a lock, as its store shows it. */
export interface Waiting {
  readonly ticket: string;
  /** `Place.calls`, as it was last told for its process; undefined where it was not. */
  readonly calls?: number;
}

/** A bound of a time that a call may ask for. */
export interface Bound {
  readonly ms: number;
  /** Where it comes from, and what to do about it: sentences of the store, for the error of a call that asks for another time. */
  readonly because: string;
}

/** What the store bounds beside the library. */
export interface Bounds {
  /** The shortest ttl whose lease can be extended in time. */
  readonly shortestTtlMs?: Bound;
  /** The longest ttl, and the longest time for which a lock can be kept, however its work ends. */
  readonly longestMs?: Bound;
}

/** The request of a list of locks. */
export type ListRequest = Readonly<Required<ListOptions>>;

/** The locks that a backend has found. */
export interface Listed {
  /** In any order, each key once, and no more than the limit of the request. */
  locks: { key: string; holding: Holding }[];
  /** Whether these are all that fit: neither the limit nor the budget has ended the search. */
  complete: boolean;
  /** How many keys of the store were looked at, about. */
  scanned: number;
}

/** A lock that was taken by force. */
export interface Taken {
  /** The owner values that cannot hold it any more; none if that is certain of nobody. */
  from: string[];
}

/**
 * Holds locks in a store, one attempt at a time: it does not wait for a lock, and knows nothing of leases, calls or Nest.
 * Each method settles within the backend's time limit of a store that answers nothing, and behind one that is busy when that has
 * answered; an attempt that is given up is undone by the backend itself.
 *
 * A method throws, or rejects, only where its comment says so. `acquire`, `extend` and `release` take a callback, which is called once, after
 * the method has returned, and in the order in which the store answered: promises would not keep that order (docs/adr/0017-batches.md).
 * `fromPromises` makes a backend of one that is written with promises.
 */
export interface LockBackend {
  readonly bounds: Bounds;
  /** Set by the engine. Called when the store can be reached again: what could not be sent, or was not answered, is tried again. */
  onReachable?: () => void;
  /** Called before the last tries of an application that closes: they are sent even behind commands that are not answered. */
  insist?(): void;
  /** A capability: the modes beside `exclusive` in which it holds locks. */
  readonly modes?: readonly LockMode[];
  /** Why it holds locks in no other mode, and what to do: sentences of the store, for the error of a call that asks for one. */
  readonly whyOnlyExclusive?: string;
  /** Whether what it is asked is sent only when the present turn of the event loop is over. @default at once */
  readonly sendsLater?: boolean;
  /**
   * The longest an attempt to acquire can take, in milliseconds, if it has to wait for no other operations. A call that does not
   * wait for its lock is given this time: behind others its attempt may take longer.
   */
  attemptTimeoutMs(): number;
  acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void;
  /** A grant that this backend did not make itself is taken, too: another process may have made it. */
  extend(request: ExtendRequest, done: (outcome: ExtendOutcome) => void): void;
  /**
   * Repeated in the background until it is confirmed, or the lock has ended by itself. Takes any grant, as `extend` does.
   * `released` says that this, or the keeping, is confirmed.
   */
  release(grant: Grant, how: Releasing, done: (outcome: ReleaseOutcome) => void): void;
  /** The key of a lock that users never take, at the server that has a lock of theirs: by it is tried whether locks can be taken. */
  probeKey(key: string): string;
  /**
   * The known problems of the nodes that keep an attempt for this key waiting.
   * @param silence the problem of a node that is connected, but owes an answer
   */
  problems(silence: string, key: string): NodeError[];
  /** Why the lock of this owner value, which was given back, may still be there. Undefined: nothing is known of it. */
  unreleased?(owner: string): NodeError | undefined;
  /** @throws LockUnavailableError */
  inspect(key: string): Promise<Holding | undefined>;
  /**
   * Finds the locks that are held, whoever holds them. It must not hold up other operations, nor leave locks out because a
   * server did not answer.
   * @throws LockUnavailableError
   */
  list(request: ListRequest): Promise<Listed>;
  /**
   * Takes a lock from its holder.
   * @param from the owner that it is taken from; from any other it is not. Undefined: from whoever holds it
   * @returns undefined when it had none, or not that one
   * @throws LockUnavailableError
   */
  forceRelease(key: string, from?: string): Promise<Taken | undefined>;
  /**
   * Waits until locks can be taken.
   * @returns the problems of nodes that are not needed for that
   * @throws LockUnavailableError after `timeoutMs`, naming the nodes
   */
  connect(timeoutMs: number): Promise<NodeError[]>;
  /**
   * Asks each server once whether it answers, on the connections that locks use, and opens none: health checks call it every few
   * seconds. Takes as long as the time limit of one command at most. Never rejects.
   */
  ping(): Promise<BackendPing>;
  /** Checks each server once, for `timeoutMs` at most. Never rejects. */
  report(timeoutMs: number): Promise<BackendReport>;
  /** Tries unconfirmed releases once more, and closes the connections that the backend opened. */
  close(): Promise<void>;

  /**
   * A capability: locks that a transaction of the store keeps until it ends, whatever becomes of their leases. The statement fails if another
   * took one of them over meanwhile. A release that comes before the transaction has ended is not confirmed.
   * @param passedOnForMs how long ago one of them was passed on within this process last, which the store does not know; Infinity: none was
   */
  guard?(grants: readonly Grant[], passedOnForMs?: number): GuardStatement;
  /**
   * A capability: changes the holder of a lock in one step. A lock that has the new owner value already counts as transferred by this
   * request, since that can run twice: its ttl starts anew, unless more is left and may stay, and it keeps its token. The queue stays as it is. Never rejects.
   */
  transfer?(request: Transfer): Promise<TransferOutcome>;
  /** Why there is no `transfer`, and what to do: sentences of the store, for the error of a call that needs it. */
  readonly whyNoTransfer?: string;
  /** A capability: waiting calls have places in a queue of the store. Without it they ask again after pauses that grow. */
  readonly waitQueue?: WaitQueue;
  /**
   * A capability of a backend without a wait queue: an attempt for many locks costs little more than for one, so all lines of a process that
   * have waited for long ask at the same times, each so many milliseconds. Without it each asks after pauses of its own.
   */
  readonly pollEveryMs?: number;
  /**
   * A capability: gives a lock back and asks for it again in one step, so that the process is never absent from the queue. Like
   * `release` and `acquire`, and sent with the releases. If the attempt is not wanted any more by then, the lock is only given back. Both
   * are of one mode.
   */
  releaseAndAcquire?(
    grant: Grant,
    released: (outcome: ReleaseOutcome) => void,
    request: AcquireRequest,
    done: (outcome: AcquireOutcome) => void,
  ): void;
}

/** A place in the queue of a lock, the same in all attempts with it, except for its time. */
export interface Place {
  /** Where locks are handed over this is also the owner value of the attempt. */
  readonly ticket: string;
  readonly hold: Hold;
  /** For how many turns of calls of this process the lock is handed over to it. */
  readonly turns: number;
  /** How many calls of this process wait for the key now, in whatever mode. The store keeps it to show it, and decides nothing by it. */
  readonly calls: number;
  /** When it counts as taken, by the monotonic clock: places are served in this order, as far as the clocks can be compared. */
  readonly arrivedAt: number;
  /** Whether it was taken by an earlier attempt. */
  readonly isTaken: boolean;
  /** The hint of the last answer to it. */
  readonly hint?: object;
}

/** A lock that was handed over to a ticket, and is free again soon if it is not extended. */
export interface HandOver {
  /** For how long it stands, in milliseconds from some time after it was first asked for with this ticket. */
  readonly ttlMs: number;
  /**
   * @param key that of the lock, which the ticket is for
   * @param place the place of the ticket, with the hint of the last answer to it
   * @returns the grant, and the earliest time at which it can have been made, by the clock of the service; undefined when that
   *   time is not certain, or the message may be forged: then it only says to ask
   */
  grantOf(key: string, place: Place): { readonly grant: Grant; readonly sentAt: number } | undefined;
}

/** The queues that a store keeps for its locks. */
export interface WaitQueue {
  /** Whether a release hands the lock over to the first in the queue, or only wakes it to try for itself. */
  readonly handsOver: boolean;
  /** False where the store wakes those who wait, and does not know who they are: then nobody is shown as waiting. @default true */
  readonly keepsPlaces?: boolean;
  /** Whether the listener will be called when the turn of a place comes that waits for this key. */
  isListening(key: string): boolean;
  /** Begins to listen for turns at this key, unless it does already. The listener is the same in all calls. */
  listen(key: string, listener: WaitListener): void;
  /** Checks that messages about this key still arrive. Called when an expected one has not come. */
  checkListening(key: string): void;
  /** How wrong the clocks of its servers may be known here, by which calls are ordered, in milliseconds; undefined where they are not known. */
  clockErrorMs?(): number | undefined;
  /** Gives up a place, and the lock if that was handed over to it meanwhile. */
  leave(key: string, place: Place): void;
  /**
   * A capability of a queue that hands over: gives a lock back that was handed over to a ticket which nobody has any more. A lock
   * that is kept stays.
   */
  decline?(key: string, ticket: string): void;
}

/** Hears from a wait queue, at any time except within a call of it. */
export interface WaitListener {
  /**
   * The turn of a ticket may have come; without one that of all, because listening has begun, or was interrupted.
   * @param handOver the lock was handed over to the ticket: its holder has to extend it at once
   * @param key that of the lock, if it was handed over, with or without tokens that can be used
   */
  onTurn(ticket?: string, handOver?: HandOver, key?: string): void;
  /** The turn of any place of this key may have come: listening has begun for it, or its lock may be free. */
  onListening(key: string): void;
  /** A lock may have been taken by force from this owner value. */
  onTaken(key: string, owner: string): void;
  /** Waiting works worse than it could, for a reason that an operator should know: reported once. */
  onWarning(message: string): void;
}
