import type { HandOver, Place } from '../../core/backend/lock-backend.js';
import { StoredGrant } from './server.backend.js';

/** How long the new holder of a handed-over lock has to confirm it, in milliseconds. */
export const GRANT_TTL_MS = 2_000;

/** The second word of the message to a process whose lock was taken by force. The owner value precedes it, the key follows. */
export const TAKEN = 'taken';

export interface GrantMessage {
  /** The first and the last token. Permits have no tokens: their message has the time of the server instead. */
  fencingToken: number;
  lastToken: number;
  /** The number of the first place that remained in the queue, or the time of the server, in microseconds. */
  boundUs: number;
}

export interface Message {
  /** The ticket whose turn has come, or the owner value that lost its lock. */
  ticket: string;
  /** The grant, if its numbers are valid. */
  grant?: GrantMessage;
  /** The lock that was handed over to the ticket, under its name in the store. */
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
 * How far the token of a hand-over may be ahead of the last answer, in microseconds. Tokens are the time of the server, or run ahead
 * of it if they are minted faster. A hand-over comes at most 1.1 s after that answer. The rest allows for blocks of tokens, and for a
 * clock that was set.
 */
const TOKEN_LEAD_US = 3_000_000;

/**
 * The hint of a place in a queue that hands locks over: the state of the store at the last refusal. The place had no grant then, so
 * every grant in a message is newer.
 */
class LastRefusal {
  /**
   * @param sentAt the time of the refused attempt, by the clock of the service
   * @param connection identifies the connection of the answer
   * @param latestToken the latest token of the store at that time
   */
  constructor(
    readonly sentAt: number,
    readonly connection: unknown,
    readonly latestToken: number,
  ) {}
}

/**
 * @param wasGone whether the place had left the queue, perhaps with a grant
 * @returns undefined when a message about an earlier grant may still arrive: then a hint would prove nothing
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

/** A message that a lock was handed over to a ticket. It may be forged: every user with the right to publish can send one. */
export class HandOverMessage implements HandOver {
  readonly ttlMs = GRANT_TTL_MS;

  /** @param timeAt converts a time of the server to the monotonic clock, in milliseconds */
  constructor(
    private readonly ticket: string,
    private readonly message: GrantMessage,
    private readonly timeAt: (key: string, serverUs: number) => number | undefined,
  ) {}

  grantOf(key: string, { turns, hold, hint }: Place): ReturnType<HandOver['grantOf']> {
    if (!(hint instanceof LastRefusal)) return undefined;
    const { latestToken, sentAt } = hint;
    const { fencingToken, lastToken, boundUs } = this.message;
    // The store that gave the last answer cannot have minted these tokens since then.
    if (fencingToken < latestToken || fencingToken > latestToken + TOKEN_LEAD_US) return undefined;
    if (lastToken - fencingToken >= turns) return undefined;
    const request = { key, owner: this.ticket, ttlMs: this.ttlMs, hold };
    const tokens = hold.mode === 'permits' ? [] : [fencingToken, lastToken];
    const grant = new StoredGrant(request, tokens[0], tokens[1], this.timeAt(key, boundUs));
    return { grant, sentAt };
  }
}
