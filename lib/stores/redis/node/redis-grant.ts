import type { AcquireRequest, Grant, HandOver } from '../../../core/backend/lock-backend.js';
import { driftMs } from '../../../core/time/clock.js';
import { GRANT_TTL_MS } from '../scripts/hand-off.js';

/** A lock that Redis granted, or that an attempt may have been granted: with what its backend has to know of it. */
export class RedisGrant implements Grant {
  readonly key: string;
  readonly owner: string;
  /** The longest ttl that it was ever to have: Redis may have it with any of them. */
  longestTtlMs: number;

  constructor(
    { key, owner, ttlMs }: AcquireRequest,
    public fencingToken?: number,
    readonly lastToken?: number,
  ) {
    this.key = key;
    this.owner = owner;
    this.longestTtlMs = ttlMs;
  }
}

/** A message that a lock was handed over to a ticket. */
export class RedisHandOver implements HandOver {
  readonly ttlMs = GRANT_TTL_MS;

  constructor(
    private readonly ticket: string,
    private readonly fencingToken: number,
  ) {}

  grantOf(key: string): Grant {
    return new RedisGrant({ key, owner: this.ticket, ttlMs: this.ttlMs }, this.fencingToken);
  }
}

/** The longest ttl that a lock can have, in milliseconds. */
export const LONGEST_TTL_MS = 86_400_000;

/** An extension is about to be sent. */
export function noteTtl(grant: Grant, ttlMs: number): void {
  if (grant instanceof RedisGrant && ttlMs > grant.longestTtlMs) grant.longestTtlMs = ttlMs;
}

/** The longest that a lock may stand in Redis, in milliseconds from now. */
export function standsMs(grant: Grant): number {
  const ttlMs = grant instanceof RedisGrant ? grant.longestTtlMs : LONGEST_TTL_MS;
  return ttlMs + driftMs(ttlMs);
}
