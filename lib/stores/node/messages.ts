/** How long a lock that was handed over waits for its new holder to confirm, in milliseconds. */
export const GRANT_TTL_MS = 2_000;

/** Published to the process whose lock was taken by force: the owner value, this word, and the key. */
export const TAKEN = 'taken';

/** The grant that a message tells of. */
export interface ToldGrant {
  /** The first and the last of its tokens. Permits have none: then both are the time of the server. */
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
  /** The lock that was handed over to the ticket, by the name that the store has for it. */
  lock?: string;
  /** The key of a lock that was taken by force. */
  takenKey?: string;
}

export function readMessage(text: string): Message {
  const [ticket = '', ...words] = text.split(' ');
  if (words[0] === TAKEN) return { ticket, takenKey: words.slice(1).join(' ') };
  const numbers = words.slice(0, 3).map(Number);
  const [fencingToken, lastToken, boundUs] = numbers as [number, number, number];
  const lock = words.slice(3).join(' ') || undefined;
  const areTokens = numbers.length === 3 && numbers.every((each) => each > 0 && Number.isSafeInteger(each));
  return areTokens && lastToken >= fencingToken
    ? { ticket, grant: { fencingToken, lastToken, boundUs }, lock }
    : { ticket, lock };
}
