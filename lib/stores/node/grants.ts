import {
  LONGEST_TTL_MS,
  type AcquireRequest,
  type Grant,
  type HandOver,
  type Hold,
  type Place,
} from '../../core/backend/lock-backend.js';
import { driftMs } from '../../core/time/clock.js';
import { GRANT_TTL_MS, type ToldGrant } from './messages.js';

/** A lock that Redis granted, or may have granted, with the notes of its backend. */
export class StoredGrant implements Grant {
  readonly key: string;
  readonly owner: string;
  readonly hold?: Hold;
  /** The longest ttl that was ever sent for it, in milliseconds: which of them Redis has applied may be unknown. */
  longestTtlMs: number;

  constructor(
    { key, owner, ttlMs, hold }: Pick<AcquireRequest, 'key' | 'owner' | 'ttlMs'> & { readonly hold?: Hold },
    public fencingToken?: number,
    readonly lastToken?: number,
    readonly nobodyBefore?: number,
  ) {
    this.key = key;
    this.owner = owner;
    this.hold = hold;
    this.longestTtlMs = ttlMs;
  }
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
   * @param latestToken how far the tokens of the store had come by then
   */
  constructor(
    readonly sentAt: number,
    readonly connection: unknown,
    readonly latestToken: number,
  ) {}
}

/**
 * @param wasGone the place was not there any more, perhaps since it was granted the lock
 * @returns undefined when an earlier grant to the place may still be told of: then its hints say nothing any more
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

/** A message that a lock was handed over to a ticket: whoever may publish can send one. */
export class ToldHandOver implements HandOver {
  readonly ttlMs = GRANT_TTL_MS;

  /** @param timeAt reads a time of the server by the monotonic clock, in milliseconds */
  constructor(
    private readonly ticket: string,
    private readonly told: ToldGrant,
    private readonly timeAt: (key: string, serverUs: number) => number | undefined,
  ) {}

  grantOf(key: string, { turns, hold, hint }: Place): ReturnType<HandOver['grantOf']> {
    if (!(hint instanceof LastRefusal)) return undefined;
    const { latestToken, sentAt } = hint;
    const { fencingToken, lastToken, boundUs } = this.told;
    // No store that gave the last answer can have minted these tokens since.
    if (fencingToken < latestToken || fencingToken > latestToken + TOKEN_LEAD_US) return undefined;
    if (lastToken - fencingToken >= turns) return undefined;
    const request = { key, owner: this.ticket, ttlMs: this.ttlMs, hold };
    const tokens = hold.mode === 'permits' ? [] : [fencingToken, lastToken];
    const grant = new StoredGrant(request, tokens[0], tokens[1], this.timeAt(key, boundUs));
    return { grant, sentAt };
  }
}

/** Notes the ttl of an extension that is about to be sent. */
export function noteTtl(grant: Grant, ttlMs: number): void {
  if (grant instanceof StoredGrant && ttlMs > grant.longestTtlMs) grant.longestTtlMs = ttlMs;
}

/** The longest that a lock may stand in Redis, in milliseconds from now. */
export function standsMs(grant: Grant): number {
  const ttlMs = grant instanceof StoredGrant ? grant.longestTtlMs : LONGEST_TTL_MS;
  return ttlMs + driftMs(ttlMs);
}
