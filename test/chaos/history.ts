/** What the nemesis does. */
export const FAULT_KINDS = [
  'restart-empty',
  'restart-with-data',
  'stop-node',
  'flush',
  'forget-scripts',
  'stop-worker',
  'kill-worker',
  'cut',
  'isolate',
  'slow-requests',
  'slow-replies',
] as const;
export type FaultKind = (typeof FAULT_KINDS)[number];

/** One acquire and what followed it, in one process: `<worker>.<incarnation>.<number>`. */
interface OfTurn {
  turn: string;
}

interface Access<Type> {
  type: Type;
  key: string;
  token?: number;
  /** The value that was read, and that a write adds 1 to. */
  base: number;
  accepted: boolean;
}

/**
 * What happened, as those who took part wrote it down at once. `at` is in milliseconds of the monotonic clock, which all
 * processes of a machine share.
 */
export type Entry = { at: number } & (
  | ({ type: 'asked'; worker: number; key: string } & OfTurn)
  /**
   * The lock was had. `sentAt`: when, by the deadline of its lease, the command was sent that won it; `until`: that
   * deadline; both undefined for peers whose locks know no deadline. `grantMs`: it was begun with a grant for so long,
   * which is younger than `sentAt`.
   */
  | ({
      type: 'granted';
      ttlMs: number;
      token?: number;
      owner?: string;
      sentAt?: number;
      until?: number;
      grantMs?: number;
    } & OfTurn)
  /** The holder looked, and would have gone on to write. */
  | ({ type: 'held'; until?: number } & OfTurn)
  /** Written just before the release is called, and the moment a loss is told or seen. */
  | ({ type: 'ended'; how: 'released' | 'lost' } & OfTurn)
  /** The acquire rejected. */
  | ({ type: 'refused'; code: string } & OfTurn)
  | { type: 'unhandled'; worker: number; message: string }
  /** The process did not end when it was told to. */
  | { type: 'hung'; worker: number }
  /** By the resource. */
  | (Access<'read'> & OfTurn)
  | (Access<'write'> & OfTurn)
  /** By the nemesis, with when it was undone. */
  | { type: 'fault'; kind: FaultKind; until: number; node?: number; worker?: number }
  /** All faults are undone; these workers run. */
  | { type: 'healed'; workers: number[] }
  /** It was still there when it had to be gone. */
  | { type: 'left-behind'; node: number; key: string }
);

export type EntryOf<Type extends Entry['type']> = Extract<Entry, { type: Type }>;

/** Milliseconds of the clock that all processes of a machine share. */
export function nowMs(): number {
  return Number(process.hrtime.bigint()) / 1e6;
}

/** The entries of one type, in their order. */
export function of<Type extends Entry['type']>(history: readonly Entry[], type: Type): EntryOf<Type>[] {
  return history.filter((entry): entry is EntryOf<Type> => entry.type === type);
}
