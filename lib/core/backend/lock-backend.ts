import type { NodeDiagnosis } from '../../stores/redis/doctor/diagnosis.js';
import { NodeError } from '../../api/errors.js';

/** One attempt to hold one lock. Every attempt has an owner value of its own. */
export interface Claim {
  key: string;
  owner: string;
  ttlMs: number;
  /** The longest ttl that it was to have, if that was not always the same: it may have any of them in Redis. */
  longestTtlMs?: number;
  /** What the backend notes of it. */
  notes?: unknown;
}

/** A place in the queue of a lock, the same in all attempts of one who waits. */
export interface Place {
  /** Where locks are handed over this is also the owner value of the claim. */
  ticket: string;
  /** Whether the backend listened when it was taken. If not, its turn is not taken from it for want of a listener. */
  isHeard: boolean;
  /** Its number in the order of arrival, or 0 where that is not known; undefined before it was first queued. */
  number?: number;
}

/** What goes with the attempt of somebody who waits if the lock is not free. */
export interface Waiting extends Place {
  /** How many fencing tokens to mint, for as many holders in turn. */
  tokens: number;
}

/** The answer to one attempt. Contention is a value, and so is a fault: the service decides what to make of it. */
export type AcquireOutcome =
  | {
      status: 'acquired';
      fencingToken: number;
      /** The last of the tokens that were minted for this claim, one after the other; the same if it is only one. */
      lastToken: number;
      /** When the command that won was about to be sent, by the clock of the service: the lease counts from here. */
      sentAt: number;
    }
  | {
      status: 'contended';
      /** Owner value of the holder; undefined when nobody has the majority of a split vote. */
      owner?: string;
      /** How long the holder's lease still runs; undefined when unknown. */
      remainingMs?: number;
      /** Whether it has a place in the queue now. */
      queued: boolean;
      /** The number of its place, if it has one and the number is known. */
      number?: number;
      /** The same attempt may have run before, with another answer. */
      isRepeated?: boolean;
    }
  | { status: 'unavailable'; causes: NodeError[] };

export type ExtendOutcome =
  | { status: 'extended'; sentAt: number }
  /** Definitely not held any more. */
  | { status: 'lost'; reason: 'expired' | 'stolen' }
  | { status: 'unavailable'; causes: NodeError[] };

export type ReleaseOutcome =
  | { status: 'released' }
  /** It was not this owner's any more. */
  | { status: 'gone' }
  /** Not confirmed; the backend repeats it until it is, or the lock has ended by itself. */
  | { status: 'unavailable'; causes: NodeError[] };

/** What the backend knows of a held lock. */
export interface Holding {
  owner: string;
  remainingMs: number;
  fencingToken?: number;
  /** For how long it is held; undefined when that is unknown. */
  heldForMs?: number;
}

/**
 * Called with a ticket whose turn may have come; without one when all should ask for themselves, because listening has
 * begun, or was interrupted.
 * @param fencingToken the lock was granted to the ticket with this token, for `GRANT_TTL_MS` from some time after it was
 *   first asked for with it; who begins with that extends it at once
 */
export type Wake = (ticket?: string, fencingToken?: number) => void;

/** Called with a lock, and the owner value that it is said to have been taken from. */
export type Suspect = (key: string, owner: string) => void;

/** A lock that was taken by force. */
export interface Taken {
  /** The owner values that cannot hold it any more; none if those of a Redlock were split. */
  from: string[];
}

/**
 * Holds locks, one attempt at a time: it keeps the places of those who wait, but does not wait, and knows nothing of
 * Nest. Each method settles within the
 * backend's time limit, and what it gave up it undoes by itself.
 */
export interface LockBackend {
  /** The longest an attempt to acquire with this ttl can take, in milliseconds. */
  attemptTimeoutMs(ttlMs: number): number;
  /** Whether a release hands the lock over to the first in the queue, or only wakes it to try for itself. */
  readonly handsOver: boolean;
  /**
   * With `waiting` a lock that is not free puts the ticket into the queue: who was queued and does not acquire has to
   * `leave`.
   * @param told is given the outcome, once and after this has returned
   */
  acquire(claim: Claim, waiting: Waiting | undefined, told: (outcome: AcquireOutcome) => void): void;
  /** @param told is given the outcome, once and after this has returned */
  extend(claim: Claim, told: (outcome: ExtendOutcome) => void): void;
  /** Never rejects. Repeated in the background until it is confirmed, or the lock has ended by itself. */
  release(claim: Claim): Promise<ReleaseOutcome>;
  /** Gives up a place, and the lock if that was handed over to it meanwhile. */
  leave(key: string, place: Place): void;
  /** Whether it will be heard of when the turn of a place comes. */
  readonly isListening: boolean;
  /**
   * Begins to listen for those who wait, unless it does already.
   * @param suspect called when a lock of this process was taken by force, or so it is said
   */
  listen(wake: Wake, suspect?: Suspect): void;
  /** A wake-up that was due has not come: has it found out whether they still do. */
  checkListening(): void;
  /**
   * What is wrong, as far as is known, with the nodes that keep an attempt waiting.
   * @param silence what to say of a node that is connected, but owes an answer
   */
  problems(silence: string): NodeError[];
  /** @throws LockUnavailableError */
  inspect(key: string): Promise<Holding | undefined>;
  /**
   * @returns undefined when nobody held it
   * @throws LockUnavailableError
   */
  forceRelease(key: string): Promise<Taken | undefined>;
  /**
   * Waits until locks can be taken.
   * @returns what is wrong with the nodes that are not needed for it
   * @throws LockUnavailableError after `timeoutMs`, naming the nodes
   */
  connect(timeoutMs: number): Promise<NodeError[]>;
  /** Checks each server once, for `timeoutMs` at most; none for locks in memory. Never rejects. */
  probe(timeoutMs: number): Promise<NodeDiagnosis[]>;
  /** Tries once more what is still to be released, and closes the connections that the backend opened. */
  close(): Promise<void>;
}

/** Tells the outcome of an attempt that must not reject; but if it does, nobody must be kept waiting either. */
export function tell(attempt: Promise<AcquireOutcome>, told: (outcome: AcquireOutcome) => void): void {
  void attempt.then(told, (bug: unknown) =>
    told({ status: 'unavailable', causes: [new NodeError('Redis', String(bug))] }),
  );
}
