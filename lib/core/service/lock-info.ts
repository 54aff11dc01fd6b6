import { keptUntil } from '../backend/kept-until.js';
import type { Holding } from '../backend/lock-backend.js';
import type { LockInfo } from '../../api/lock.js';
import { digestOf, parseOwner, type LockHolder } from '../../api/holder.js';

/** What `inspect` and `list` say of a lock that is held. */
export function lockInfo(key: string, holding: Holding, waiters: number): LockInfo {
  const { holders, waiting = [] } = holding;
  const [holder] = holders;
  const { owner, remainingMs, fencingToken, heldForMs } = holder;
  const since = heldForMs === undefined ? undefined : new Date(Date.now() - heldForMs);
  return {
    key,
    holder: parseOwner(owner),
    digest: digestOf(owner),
    since,
    remainingMs: Math.round(remainingMs),
    keptUntil: keptUntil(holder),
    fencingToken,
    waiters,
    waitingProcesses: processesOf(waiting),
  };
}

/** Each process once: a store of several servers may show different places of it. */
function processesOf(tickets: readonly string[]): LockHolder[] {
  const processes = new Map<string, LockHolder>();
  for (const ticket of tickets) {
    const process = ticket.slice(0, ticket.lastIndexOf('/'));
    if (!processes.has(process)) processes.set(process, parseOwner(ticket));
  }
  return [...processes.values()];
}
