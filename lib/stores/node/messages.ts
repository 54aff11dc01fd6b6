import type { HandOver, Place } from '../../core/backend/lock-backend.js';
import { StoredGrant } from './server.backend.js';

/** How long a lock that was handed over waits for its new holder to confirm, in milliseconds. */
export const GRANT_TTL_MS = 2_000;

/** Published to the process whose lock was taken by force: the owner value, this word, and the key. */
export const TAKEN = 'taken';

/** The grant that a message tells of. */
export interface GrantMessage {
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
  grant?: GrantMessage;
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

/**
 * How far ahead of the last answer the token of a hand-over may be, in microseconds: tokens are the time of the server, or
 * run ahead of it where they are minted faster. A hand-over is begun with up to 1.1 s after that answer; the rest is for
 * tokens in bulk, and a clock that is set.
 */
const TOKEN_LEAD_US = 3_000_000;

/**
 * The hint of a place in a queue that hands over: what the attempt showed that was refused last. The place had no grant then, so any grant
 * that a message tells of is newer than that attempt.
 */
class LastRefusal {
  /**
   * @param sentAt when the attempt was sent, by the clock of the service
   * @param connection stands for the connection that the answer came on
   * @param latestToken the latest token of the store at that time
   */
  constructor(
    readonly sentAt: number,
    readonly connection: unknown,
    readonly latestToken: number,
  ) {}
}

/**
 * @param wasGone the place was not there any more, perhaps since it was granted the lock
 * @returns undefined when a message about an earlier grant to the place may still come: then a hint proves nothing
 */
export function hintOf(
  { hint, isTaken }: Place,
  sentAt: number,
  connection: unknown,
  latestToken: number,
  wasGone: boolean,
): object | undefined {
  // Another connection may lead to another server.
  const isContinued = !isTaken || (hint instanceof LastRefusal && hint.connection === connection);
  return isContinued && !wasGone ? new LastRefusal(sentAt, connection, latestToken) : undefined;
}

/** A message that a lock was handed over to a ticket. Anybody who may publish can send one. */
export class HandOverMessage implements HandOver {
  readonly ttlMs = GRANT_TTL_MS;

  /** @param timeAt reads a time of the server by the monotonic clock, in milliseconds */
  constructor(
    private readonly ticket: string,
    private readonly message: GrantMessage,
    private readonly timeAt: (key: string, serverUs: number) => number | undefined,
  ) {}

  grantOf(key: string, { turns, hold, hint }: Place): ReturnType<HandOver['grantOf']> {
    if (!(hint instanceof LastRefusal)) return undefined;
    const { latestToken, sentAt } = hint;
    const { fencingToken, lastToken, boundUs } = this.message;
    // No store that gave the last answer can have minted these tokens since.
    if (fencingToken < latestToken || fencingToken > latestToken + TOKEN_LEAD_US) return undefined;
    if (lastToken - fencingToken >= turns) return undefined;
    const request = { key, owner: this.ticket, ttlMs: this.ttlMs, hold };
    const tokens = hold.mode === 'permits' ? [] : [fencingToken, lastToken];
    const grant = new StoredGrant(request, tokens[0], tokens[1], this.timeAt(key, boundUs));
    return { grant, sentAt };
  }
}
