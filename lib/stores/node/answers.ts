import type { NodeError } from '../../api/errors.js';
import type { Holding } from '../../core/backend/lock-backend.js';

/** Why a node did not do an operation, or did not confirm it. */
export interface Fault {
  status: 'fault';
  error: NodeError;
  /** The command may have taken, or may yet take, effect. */
  mayHaveRun: boolean;
  /** The connection failed, or the server refuses for a moment: the same command may pass when it is sent again. */
  disconnected: boolean;
  /** The epoch in which the node was admitted to vote, if it has lost its data since. */
  wiped?: string;
}

/** The answer of a node to an attempt. */
export type Vote =
  | {
      status: 'granted';
      fencingToken: number;
      /** The last of its tokens, if it has several. */
      lastToken?: number;
      /** Nobody who waits elsewhere came earlier, by the clock of the server in microseconds. */
      boundUs?: number;
      /** The time of the node in microseconds: of a vote only if that is not the token that was proposed. */
      nodeTimeUs?: number;
      /** What became of the lock that was given back in the same step. */
      gaveBack?: GaveBack;
    }
  | {
      status: 'refused';
      owner: string;
      /** How many hold it beside that owner, where the store tells. */
      others?: number;
      remainingMs: number;
      isKept?: boolean;
      /** Its earlier place was passed over, as the message that its turn had come did not arrive. */
      wasPassedOver?: boolean;
      /** The smallest limit of permits that a holder names. */
      smallestLimit?: number;
      /** The time of the server in microseconds, or the token of the holder if that is larger. */
      latestToken?: number;
      nodeTimeUs?: number;
      /** What became of the lock that was given back in the same step. */
      gaveBack?: GaveBack;
    }
  | (Fault & { gaveBack?: GaveBack });

/** The answer to an attempt to hold a lock together with others: it does. */
export interface Joined {
  status: 'joined';
  /** That of all who share the lock. */
  fencingToken?: number;
  /** How many of the further owners do, too: the first ones. */
  others: number;
  /** The smallest limit of permits that a holder names. */
  smallestLimit: number;
  /** As of a grant. */
  boundUs: number;
  nodeTimeUs: number;
  gaveBack?: GaveBack;
}

type GaveBack = 'released' | 'gone';

/** The answer of a node to the question who holds a lock. */
export type NodeView = { status: 'seen'; holding?: Holding } | Fault;
/** The answer to a transfer: the token that the lock has now. */
export type NodeTransfer = { status: 'transferred'; fencingToken: number } | { status: 'absent' | 'foreign' } | Fault;
export type NodeExtension = { status: 'extended' | 'restored' | 'absent' | 'foreign' } | Fault;
/** The answer to a release by force: `from` are the owner values that it was taken from. */
export type NodeSeizure = { status: 'taken'; from: readonly string[] } | { status: 'absent' } | Fault;
export type NodeRelease = { status: 'released' | 'gone' } | Fault;

/** The keys of locks that a server, or a Cluster, may have. */
export type NodeScan =
  | {
      status: 'scanned';
      /** Each once. There may be more than the limit of the request. */
      keys: string[];
      /** Whether the search came to its end. */
      isComplete: boolean;
      /** How many keys were looked at, about. */
      scanned: number;
    }
  | { status: 'failed'; errors: NodeError[] };

/** The value that at least `quorum` of the nodes gave. */
export function agreed<T>(values: readonly T[], quorum: number): T | undefined {
  return values.find((value) => values.filter((other) => other === value).length >= quorum);
}

export function isFault(answer: { status: string } | undefined): answer is Fault {
  return answer?.status === 'fault';
}
