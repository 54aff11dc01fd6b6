import type { NodeError } from '../errors.js';

/** One attempt to hold one lock. Every attempt has an owner value of its own. */
export interface Claim {
  key: string;
  owner: string;
  ttlMs: number;
}

/** The answer to one attempt. Contention is a value, and so is a fault: the service decides what to make of it. */
export type AcquireOutcome =
  | {
      status: 'acquired';
      fencingToken: number;
      /** When the command that won was about to be sent, by the clock of the service: the lease counts from here. */
      sentAt: number;
    }
  | {
      status: 'contended';
      /** Owner value of the holder; undefined when nobody has the majority of a split vote. */
      owner?: string;
      /** How long the holder's lease still runs; undefined when unknown. */
      remainingMs?: number;
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
  /** Not confirmed; the backend repeats it until it is. */
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
 * Holds locks, one attempt at a time: no waiting for others, no knowledge of Nest. Each method settles within the
 * backend's time limit, and what it gave up it undoes by itself.
 */
export interface LockBackend {
  /** The longest an attempt to acquire with this ttl can take, in milliseconds. */
  attemptTimeoutMs(ttlMs: number): number;
  /** Never rejects. */
  acquire(claim: Claim): Promise<AcquireOutcome>;
  /** Never rejects. */
  extend(claim: Claim): Promise<ExtendOutcome>;
  /** Never rejects. Repeated in the background until it is confirmed. */
  release(claim: Claim): Promise<ReleaseOutcome>;
  /** @throws LockUnavailableError */
  inspect(key: string): Promise<Holding | undefined>;
  /** @throws LockUnavailableError */
  forceRelease(key: string): Promise<boolean>;
  /**
   * Waits until locks can be taken.
   * @returns what is wrong with the nodes that are not needed for it
   * @throws LockUnavailableError after `timeoutMs`, naming the nodes
   */
  connect(timeoutMs: number): Promise<NodeError[]>;
  /** Tries once more what is still to be released, and closes the connections that the backend opened. */
  close(): Promise<void>;
}
