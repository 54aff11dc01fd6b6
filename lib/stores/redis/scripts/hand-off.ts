/**
 * The number of the format of all that is kept in Redis and published there, see docs/protocol.md: processes that run
 * versions with the same number can share locks.
 */
export const PROTOCOL = 1;

/** How long a lock that was handed over waits for its new holder to confirm, in milliseconds. */
export const GRANT_TTL_MS = 2_000;

/**
 * How a place is served, by `lua/parts/hand-off.lua`. A `grant` is for a process that hears of it, or else the next is
 * served. A `blind-grant` stands until it runs out, for a process that does not listen yet, and in a Cluster, where PUBLISH
 * counts the listeners of one node only. A `wake` is for a Redlock, where no node alone can grant.
 */
export type Service = 'grant' | 'blind-grant' | 'wake';

const KINDS: Record<Service, string> = { grant: 'g', 'blind-grant': 'b', wake: 'w' };

/**
 * An entry in the queue of a lock: how to serve it, the channel that its process listens to, and its ticket, which is
 * published there, with a fencing token if the lock was granted to it. A lock that is granted holds the ticket as
 * its owner value.
 */
export function queueEntry(service: Service, channel: string, ticket: string): string {
  return `${KINDS[service]} ${channel} ${ticket}`;
}

/** Published to the process whose lock was taken by force: the owner value, this word, and the key. */
export const TAKEN = 'taken';

/** A message that is published to a process. */
export interface Message {
  /** Or the owner value that a lock was taken from. */
  ticket: string;
  /** Of the grant, if one was minted that an acquisition could have, too. */
  fencingToken?: number;
  /** The lock was taken by force. */
  takenKey?: string;
}

export function readMessage(text: string): Message {
  const [ticket = '', token, ...key] = text.split(' ');
  if (token === TAKEN) return { ticket, takenKey: key.join(' ') };
  const fencingToken = Number(token);
  return Number.isSafeInteger(fencingToken) && fencingToken > 0 ? { ticket, fencingToken } : { ticket };
}
