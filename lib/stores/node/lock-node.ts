import type { LockError, NodeError } from '../../api/errors.js';
import type { LockMode } from '../../api/lock.js';
import type {
  AcquireRequest,
  Bound,
  ExtendRequest,
  Grant,
  GuardStatement,
  ListRequest,
  Releasing,
  Transfer,
  WaitQueue,
} from '../../core/backend/lock-backend.js';
import type {
  NodeExtension,
  NodeRelease,
  NodeScan,
  NodeSeizure,
  NodeTransfer,
  NodeView,
  Joined,
  Vote,
} from './answers.js';

/** One server, as far as operators ask it. Nothing rejects. */
export interface StoreNode {
  /** Names the server in errors, without credentials. */
  readonly name: string;
  inspect(key: string): Promise<NodeView>;
  /** Searches for locks, held or free meanwhile. Takes the budget of the request, and one time limit more, at most. */
  scan(request: ListRequest): Promise<NodeScan>;
  /** @param from the owner that the lock is taken from; undefined: from whoever holds it */
  forceRelease(key: string, from?: string): Promise<NodeSeizure>;
  /** @returns the problem; undefined when it answered */
  ping(): Promise<NodeError | undefined>;
}

/**
 * A server that keeps locks alone: what `SingleNodeBackend` makes a backend of. A `done` callback is called once,
 * after the method has returned, and in the order in which the server answered.
 */
export interface LockNode extends StoreNode {
  /** The store in errors: `Redis`. */
  readonly store: string;
  readonly connection: NodeConnection;
  /** As of `LockBackend`. */
  onReachable?: () => void;
  /** As of `LockBackend`. */
  insist?(): void;
  /** As of `LockBackend`: mostly the node itself. */
  readonly waitQueue?: WaitQueue;
  /** As of `LockBackend`. */
  readonly pollEveryMs?: number;
  /** As of `LockBackend`. */
  readonly modes?: readonly LockMode[];
  /** Whether what it is asked is sent only when the present turn of the event loop is over. @default at once */
  readonly sendsLater?: boolean;
  /** As of `LockBackend`. */
  readonly whyOnlyExclusive?: string;
  /**
   * Attempts to acquire a lock. With a place, a refused attempt is queued.
   * @param done its second argument says when the attempt was sent; when it failed, if it never was
   * @param givenBack the owner value of a lock of the same key that is given back in the same step: only where there is a queue
   */
  acquire(request: AcquireRequest, done: (vote: Vote | Joined, sentAt: number) => void, givenBack?: string): void;
  /** @param done as of `acquire` */
  extend(request: ExtendRequest, mode: 'keep', done: (extension: NodeExtension, sentAt: number) => void): void;
  /**
   * Releases a lock, or keeps it. Retried in the background until it is confirmed, or the lock has ended by itself.
   * @param forMs how long the lock may stand, in milliseconds; Infinity where an attempt that was not answered may yet run
   */
  release(grant: Grant, how: Releasing, done?: (release: NodeRelease) => void, forMs?: number): void;
  /** As of `LockBackend`, once. @param done as of `acquire` */
  transfer(request: Transfer, done: (transfer: NodeTransfer, sentAt: number) => void): void;
  /** As of `LockBackend`. */
  guard?(grants: readonly Grant[], passedOnForMs?: number): GuardStatement;
  /** A time of the server that has the key, by the monotonic clock in milliseconds; undefined before it has told the time. */
  timeAt(key: string, serverUs: number): number | undefined;
  /**
   * The problem of this node, as far as it is known.
   * @param silence the problem of a node that is connected, but owes an answer
   */
  problem(silence: string): NodeError | undefined;
  /** The error of an application whose start has waited for it. */
  unreachable(problem: NodeError, timeoutMs: number): LockError;
  /** Waits for releases in flight, tries the unconfirmed ones once more, then closes the connection. */
  close(): Promise<void>;
}

/** An extension that replicas must have. */
export type ReplicatedExtension = ExtendRequest & Pick<Transfer, 'atLeast'>;

/** Replicas that must have a lock before it counts as held. */
export interface AwaitedReplicas {
  readonly shortestTtl: Bound;
  /** The longest that an extension can take, in milliseconds. */
  readonly timeoutMs: number;
  /** Starts the ttl of a lock anew, and waits until enough replicas have that. */
  extend(request: ReplicatedExtension): Promise<NodeExtension>;
  close(): void;
}

/** The connection to a server. */
export interface NodeConnection {
  /** Another one for each time that it was made: it may lead to another server. */
  readonly generation: unknown;
  /** Whether waiting for it is useless: an attempt to reconnect has failed, or took too long. */
  readonly isKnownDown: boolean;
  /**
   * Waits until commands can be sent.
   * @param when at the `start` of the application the server may be starting, too
   * @returns the problem; undefined when it is ready
   */
  ready(timeoutMs: number, when?: 'start'): Promise<NodeError | undefined>;
}
