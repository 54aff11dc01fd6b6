import type { FaultKind } from './schedule.js';

/** The lock that all workers want when the faults are over: no earlier turn holds it. */
export const CALM_KEY = 'calm';
/** The locks that some workers want together with that one. */
export const CALM_SET = [CALM_KEY, 'calm 2'];

/** A fault that may cost locks: a fault of the nemesis, or in a simulation a server clock that is set ahead. */
export type LossKind = FaultKind | 'clock-ahead';

/** One acquire and what followed it, in one process: `<worker>.<incarnation>.<number>`. */
interface OfTurn {
  turn: string;
}

/** The process of a turn: `<worker>.<incarnation>`. */
export function processOf(turn: string): string {
  return turn.slice(0, turn.lastIndexOf('.'));
}

/** How a turn holds a lock together with others. */
export type Hold = { mode: 'shared' } | { mode: 'permits'; permits: number; limit: number };

/** What a node restores when it goes back to old data. */
export interface Revived {
  /** Of all readers. */
  readonly tokens: readonly number[];
  /** The owner values of all waiting calls, to which it grants locks. */
  readonly tickets: readonly string[];
}

interface Access<Type> {
  type: Type;
  key: string;
  token?: number;
  /** The value that was read; a write adds 1 to it. */
  base: number;
  accepted: boolean;
}

/**
 * The events, written down at once by the processes that took part. `at` is in milliseconds of the monotonic clock,
 * which all processes of a machine share.
 */
export type Entry = { at: number } &
  /**
   * `endlessly`: a campaign, which waits as long as another process leads. `calmly`: after the faults, by a call that
   * waits until it is served.
   */
  (
    | ({ type: 'asked'; worker: number; key: string; endlessly?: true; calmly?: true } & OfTurn)
    /**
     * The lock was had. `sentAt`: when, by the deadline of its lease, the command was sent that won it; `until`: that
     * deadline; both undefined for peers whose locks know no deadline. `grantMs`: it was begun with a grant for so long,
     * which is younger than `sentAt`. `hold`: undefined if it is held alone. `came`: of a lock that was held before, and was not
     * asked for anew; one that was downgraded is held all the while.
     */
    | ({
        type: 'granted';
        ttlMs: number;
        token?: number;
        owner?: string;
        sentAt?: number;
        until?: number;
        grantMs?: number;
        hold?: Hold;
        came?: 'downgraded' | 'adopted';
        maxHoldMs?: number;
      } & OfTurn)
    /** The holder looked, and would have gone on to write. */
    | ({ type: 'held'; until?: number } & OfTurn)
    /** Written just before the release is called, and the moment a loss is told or seen. `overstayed`: for its `maxHoldMs`. */
    | ({ type: 'ended'; how: 'released' | 'lost' | 'overstayed' } & OfTurn)
    /** The acquire rejected. */
    | ({ type: 'refused'; code: string } & OfTurn)
    /** Its event loop runs: written again and again, by a timer. */
    | { type: 'beat'; process: string; worker: number }
    /** By the one who started it. */
    | { type: 'exited'; process: string; worker: number }
    /**
     * A process took the lock away from whoever had it, between `at` and `answered`: that is when it knew, undefined if
     * nobody had it, or it did not learn of it. What it has sent to nodes that hang may run until `until`. Written before it
     * asks, and again with the same `at` when it knows: the later entry counts.
     */
    | { type: 'forced'; process: string; key: string; answered?: number; until: number }
    | { type: 'unhandled'; worker: number; message: string }
    /** The process did not end when requested. */
    | { type: 'hung'; worker: number }
    /** By the resource; or, under a guard, by the transactions of a database in the order of each key. */
    | (Access<'read'> & OfTurn)
    | (Access<'write'> & OfTurn & { isGuarded?: true })
    /**
     * By the nemesis, with when it was undone. `forgets`: what the node knew before is certainly gone by then. `revived`: what is in the old
     * data that it goes back to, where that can be looked into.
     */
    | {
        type: 'fault';
        kind: LossKind;
        until: number;
        node?: number;
        worker?: number;
        forgets?: boolean;
        revived?: Revived;
      }
    /** All faults are undone; these workers run. */
    | { type: 'healed'; workers: number[] }
    /** It was still there when it had to be gone. */
    | { type: 'left-behind'; node: number; key: string }
  );

/** An entry without its time. */
export type Unstamped = Entry extends infer One ? (One extends { at: number } ? Omit<One, 'at'> : never) : never;

export type EntryOf<Type extends Entry['type']> = Extract<Entry, { type: Type }>;

/** Milliseconds of the clock that all processes of a machine share. */
export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** The entries of one type, in their order. */
export function of<Type extends Entry['type']>(history: readonly Entry[], type: Type): EntryOf<Type>[] {
  return history.filter((entry): entry is EntryOf<Type> => entry.type === type);
}
