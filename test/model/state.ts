import type { Failed } from '../../lib/stores/node/server.backend.js';
import type { Lock, Scripts } from './node.js';

/** The possible answers of a node. */
export type Answer = Exclude<ReturnType<Scripts[keyof Scripts]>[1], { status: 'released' }> | Failed;

/** A command on its way to a node, or with its answer on the way back. It may arrive late, or never. */
export interface Message {
  readonly kind: 'vote' | 'raise' | 'extend' | 'restore';
  readonly from: number;
  readonly token: number;
  readonly answer?: Answer;
  /** Whether the node has restarted since it answered. */
  readonly isOld?: boolean;
}

/** What a node may lose. */
export interface Memory {
  /** The counter of the shard of all keys. */
  readonly fence?: number;
  /** By key. */
  readonly locks: readonly (Lock | undefined)[];
  /**
   * Each lock lasts at least until this lease of its owner has ended: 1 is the lease of the acquisition, 2 the lease of
   * its extension.
   */
  readonly leases: readonly number[];
}

export interface Node {
  readonly memory: Memory;
  /** When it lost its data, and how many leases of each attempt had begun by then. */
  readonly lost?: { readonly at: number; readonly leases: readonly number[] };
  /** Its state on disk, with which it may restart. */
  readonly snapshot?: Memory;
  readonly mail: readonly Message[];
  readonly ahead: number;
  /** For its key. */
  readonly text: { is?: string };
}

export interface Attempt {
  readonly phase: 'idle' | 'vote' | 'raise' | 'held' | 'extend' | 'over';
  /** The largest token of its key that was issued before it began. */
  readonly floor: number;
  /** The token that it writes back, or that it holds. */
  readonly token: number;
  /** Leases: how many it sent commands for, which one it has, how many have ended. */
  readonly begun: number;
  readonly has: number;
  readonly ended: number;
}

export interface State {
  readonly time: number;
  readonly nodes: readonly Node[];
  readonly attempts: readonly Attempt[];
  /** By key. */
  readonly issued: readonly (readonly number[])[];
  readonly wipes: number;
  readonly resends: number;
  readonly problem?: string;
}
