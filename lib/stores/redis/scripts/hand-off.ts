import type { Hold } from '../../../core/backend/lock-backend.js';
import { CROWD, RELEASE, TURN } from './lua.js';
import type { Script } from './script.js';

/**
 * The format number of all keys and messages in Redis, see docs/protocol.md: processes that run versions with the same
 * number can share locks.
 */
export const PROTOCOL = 3;

/** The same script where it gives a lock back: it goes with the releases. */
export const GIVE_AND_TURN: Script = { ...TURN, name: 'give-and-turn', order: RELEASE.order };
export const GIVE_CROWD: Script = { ...CROWD, name: 'give-crowd', order: RELEASE.order };

/**
 * How `lua/parts/hand-off.lua` serves a place whose turn has come: a `wake` is for a Redlock, where no node can grant alone.
 */
export type Service = 'grant' | 'wake';

const KINDS: Record<Service, string> = { grant: 'g', wake: 'w' };

/**
 * The sign that a process gives in a queue with each attempt. Of one that is `HEARD` a grant needs listeners; if there are
 * none, the next place is served. In a Cluster those of the channel of the slot are counted. One that is `UNHEARD` is granted
 * the lock in any case: it does not listen yet, or listens to messages for all nodes of a Cluster, where PUBLISH counts the
 * listeners of one node only. One that is `DEAF` does not listen, and is sent no message, which would go to all nodes.
 */
export const [HEARD, UNHEARD, DEAF] = ['h', 'u', 'd'] as const;

export type Sign = typeof HEARD | typeof UNHEARD | typeof DEAF;

/**
 * An entry in the queue of a lock: how to serve it, the channel that its process listens to, and its ticket, which is
 * published there, with fencing tokens if the lock was granted to it. A lock that is granted holds the ticket as
 * its owner value.
 * @param turns how many tokens are granted with the lock
 */
export function queueEntry(service: Service, channel: string, ticket: string, turns: number): string {
  return `${KINDS[service]} ${channel} ${ticket}${service === 'grant' ? `~${turns}` : ''}`;
}

/** What one asks for who holds a lock together with others, as `crowd.lua` takes it: kind, permits, and limit. */
export function crowdArgs(hold: Exclude<Hold, { mode: 'exclusive' }>): [kind: string, permits: number, limit: number] {
  return hold.mode === 'shared' ? ['s', 1, 0] : ['p', hold.permits, hold.limit];
}

/** The entry of one who will hold the lock together with others. */
export function crowdEntry(hold: Exclude<Hold, { mode: 'exclusive' }>, channel: string, ticket: string): string {
  const [kind, permits, limit] = crowdArgs(hold);
  return `${kind}${kind === 'p' ? `${permits}/${limit}` : ''} ${channel} ${ticket}`;
}
