import { of, type Entry, type Hold } from './history.js';

/** One turn with a lock. */
export interface Holding {
  turn: string;
  key: string;
  worker: number;
  askedAt: number;
  /** Times at which the holder would have passed `assertHeld()`. */
  from: number;
  to: number;
  /** Its owner: the same for turns of a process that pass it on to each other. */
  owner?: string;
  /** The time from which a fault may have cost it the lock. */
  leaseFrom: number;
  /** How long the lease runs if it is no longer extended. */
  ttlMs: number;
  token?: number;
  /** Undefined for an exclusive holder. */
  hold?: Hold;
  maxHoldMs?: number;
}

interface Draft extends Holding {
  /** The last time at which it believed that it holds the lock. */
  seenAt: number;
  /** The latest deadline of its lease; infinite for locks without one. */
  deadline: number;
}

/**
 * A holder may rely on its lock from the grant until it releases it, learns of its loss, or the deadline of its lease
 * passes; a later check that still says "held" counts too. A holder whose process was killed relies on nothing: it ends
 * with its last check.
 */
export function holdingsOf(history: readonly Entry[]): Holding[] {
  const asked = new Map(of(history, 'asked').map((entry) => [entry.turn, entry]));
  const drafts = new Map<string, Draft>();
  /** Calls that pass a lock on to each other have one owner: they depend on the grant of the first of them. */
  const chains = new Map<string, number>();
  for (const entry of history) {
    if (entry.type === 'granted') {
      const { worker, key, at: askedAt } = asked.get(entry.turn)!;
      const { turn, at, token, owner, hold, came, maxHoldMs, sentAt, grantMs = 0, until: deadline = Infinity } = entry;
      const ttlMs = Math.max(grantMs, entry.ttlMs);
      const chain = `${worker} ${key} ${owner ?? turn}`;
      const leaseFrom = Math.min(chains.get(chain) ?? Infinity, sentAt ?? askedAt);
      chains.set(chain, leaseFrom);
      drafts.set(turn, {
        turn,
        key,
        worker,
        askedAt,
        from: came === 'downgraded' ? askedAt : at,
        to: NaN,
        owner,
        leaseFrom,
        ttlMs,
        token,
        hold,
        maxHoldMs,
        seenAt: at,
        deadline,
      });
    } else if (entry.type === 'held') {
      const draft = drafts.get(entry.turn)!;
      if (!Number.isNaN(draft.to)) continue;
      draft.seenAt = entry.at;
      draft.deadline = Math.max(draft.deadline, entry.until ?? 0);
    } else if (entry.type === 'ended') {
      const draft = drafts.get(entry.turn)!;
      if (Number.isNaN(draft.to)) draft.to = Math.min(entry.at, Math.max(draft.deadline, draft.seenAt));
    }
  }
  const holdings = [...drafts.values()];
  for (const holding of holdings) if (Number.isNaN(holding.to)) holding.to = holding.seenAt;
  return holdings;
}
