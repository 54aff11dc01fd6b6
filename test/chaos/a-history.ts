import type { Entry, Hold } from './history.js';

/** A turn with a lock, by when it was granted and given back. */
interface TurnOf {
  turn: string;
  key?: string;
  worker?: number;
  token?: number;
  hold?: Hold;
  maxHoldMs?: number;
  owner?: string;
  ttlMs?: number;
  asked?: number;
  from: number;
  to?: number;
  /** Deadline of its lease. */
  until?: number;
}

const TTL_MS = 1_000;

/** The entries of a turn, as a worker writes them. */
export function turnOf({
  turn,
  key = 'a',
  worker = 0,
  token,
  hold,
  maxHoldMs,
  owner,
  ttlMs = TTL_MS,
  from,
  asked = from - 1,
  to,
  until,
}: TurnOf): Entry[] {
  const deadline = until ?? from + ttlMs;
  const entries: Entry[] = [
    { at: asked, type: 'asked', worker, key, turn },
    { at: from, type: 'granted', turn, token, owner, ttlMs, sentAt: from - 0.5, until: deadline, hold, maxHoldMs },
    { at: from + 0.01, type: 'held', turn, until: deadline },
  ];
  if (to !== undefined) entries.push({ at: to, type: 'ended', turn, how: 'released' });
  return entries;
}

/** An access to the resource. */
export function access(
  type: 'read' | 'write',
  at: number,
  of: { turn?: string; token?: number; base: number; accepted?: boolean; key?: string },
): Entry {
  return { at, type, turn: '0.0.0', key: 'a', accepted: true, ...of };
}
