import { RELEASE, TURN } from './lua.js';
import type { Script } from './script.js';

/**
 * The format number of all keys and messages in Redis, see docs/protocol.md: processes that run versions with the same
 * number can share locks.
 */
export const PROTOCOL = 3;

/** The same script where it gives a lock back: it goes with the releases. */
export const GIVE_AND_TURN: Script = { ...TURN, name: 'give-and-turn', order: RELEASE.order };

/** How long a lock that was handed over waits for its new holder to confirm, in milliseconds. */
export const GRANT_TTL_MS = 2_000;

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

/** Published to the process whose lock was taken by force: the owner value, this word, and the key. */
export const TAKEN = 'taken';

/** The grant that a message tells of. */
export interface ToldGrant {
  /** The first and the last of its tokens. */
  fencingToken: number;
  lastToken: number;
  /** The number of the first place that was left in the queue, or the time of the server, in microseconds. */
  boundUs: number;
}

/** A message that is published to a process. */
export interface Message {
  /** The ticket whose turn has come, or the owner value that a lock was taken from. */
  ticket: string;
  /** The grant, if it is one that an acquisition could have. */
  grant?: ToldGrant;
  /** The key of a lock that was taken by force. */
  takenKey?: string;
}

export function readMessage(text: string): Message {
  const [ticket = '', word, ...rest] = text.split(' ');
  if (word === TAKEN) return { ticket, takenKey: rest.join(' ') };
  const numbers = [word, ...rest].map(Number);
  const [fencingToken, lastToken, boundUs] = numbers as [number, number, number];
  const areTokens = numbers.length === 3 && numbers.every((each) => each > 0 && Number.isSafeInteger(each));
  return areTokens && lastToken >= fencingToken ? { ticket, grant: { fencingToken, lastToken, boundUs } } : { ticket };
}
