import { NodeError } from '../../../api/errors.js';
import {
  LONGEST_TTL_MS,
  type AcquireRequest,
  type Grant,
  type HandOver,
  type Holding,
} from '../../../core/backend/lock-backend.js';
import { driftMs } from '../../../core/time/clock.js';
import { nodeError } from '../client/advice.js';
import { GRANT_TTL_MS, type ToldGrant } from '../scripts/hand-off.js';
import type { Reply } from '../scripts/script-runner.js';
import { readValue } from './lock-keys.js';

/** The first word in the reply of a Redlock node that has lost its data since it was admitted to vote. */
export const WIPED = 'wiped';

/** How far a node of a Redlock lets a proposed token be from its own time, in microseconds. */
export const LIMIT_US = 1_000_000;

/** Why a node did not do an operation, or did not confirm it. */
export interface Fault {
  status: 'fault';
  error: NodeError;
  /** The command may have taken, or may yet take, effect. */
  mayHaveRun: boolean;
  /** The connection failed, not the command. */
  disconnected: boolean;
  /** The epoch in which the node was admitted to vote, if it has lost its data since. */
  wiped?: string;
}

/** The answer of a node to an attempt. */
export type Vote =
  | {
      status: 'granted';
      fencingToken: number;
      /** The last of its tokens, if it has several. */
      lastToken?: number;
      /** Nobody who waits elsewhere came earlier, by the clock of the server in microseconds. */
      boundUs?: number;
      /** The time of the node in microseconds: of a vote only if that is not the token that was proposed. */
      nodeTimeUs?: number;
      /** What became of the lock that was given back in the same step. */
      gaveBack?: GaveBack;
    }
  | {
      status: 'refused';
      owner: string;
      remainingMs: number;
      isKept?: boolean;
      /** Its earlier place was passed over, as the message that its turn had come did not arrive. */
      wasPassedOver?: boolean;
      /** The time of the server in microseconds, or the token of the holder if that is larger. */
      latestToken?: number;
      nodeTimeUs?: number;
      /** What became of the lock that was given back in the same step. */
      gaveBack?: GaveBack;
    }
  | (Fault & { gaveBack?: GaveBack });

type GaveBack = 'released' | 'gone';

/** Allows a node to vote that was checked for a restart. */
export interface Admission {
  /** Changes when the server loses data. */
  epoch: string;
}

/** The answer of a node to the question since when it knows all locks that it granted. */
export type NodeAdmission =
  | {
      status: 'admitted';
      epoch: string;
      /** For how long it has known them. */
      sinceMs: number;
      /** The longest ttl that it has heard of. */
      longestMs: number;
      /** The time of the node in microseconds. */
      timeUs: number;
    }
  | Fault;

/** The answer of a node that is to vote at once: whether it has a key of the prefix. */
export type NodeInitialisation =
  { status: 'new' } | { status: 'used'; key: string } | { status: 'full'; keys: number } | Fault;

export type NodeExtension = { status: 'extended' | 'restored' | 'absent' | 'foreign' } | Fault;
/** The answer to a release by force: `from` is the owner value that held the lock. */
export type NodeSeizure = { status: 'taken'; from: string } | { status: 'absent' } | Fault;
export type NodeRelease = { status: 'released' | 'gone' } | Fault;

/** A lock that Redis granted, or may have granted, with the notes of its backend. */
export class RedisGrant implements Grant {
  readonly key: string;
  readonly owner: string;
  /** The longest ttl that was ever sent for it, in milliseconds: which of them Redis has applied may be unknown. */
  longestTtlMs: number;

  constructor(
    { key, owner, ttlMs }: Pick<AcquireRequest, 'key' | 'owner' | 'ttlMs'>,
    public fencingToken?: number,
    readonly lastToken?: number,
    readonly nobodyBefore?: number,
  ) {
    this.key = key;
    this.owner = owner;
    this.longestTtlMs = ttlMs;
  }
}

/**
 * How far ahead of the last answer the token of a hand-over may be, in microseconds: tokens are the time of the server, or
 * run ahead of it where they are minted faster. A hand-over is begun with up to 1.1 s after that answer; the rest is for
 * tokens in bulk, and a clock that is set.
 */
const TOKEN_LEAD_US = 3_000_000;

/** A message that a lock was handed over to a ticket: whoever may publish can send one. */
export class RedisHandOver implements HandOver {
  readonly ttlMs = GRANT_TTL_MS;

  /** @param timeAt reads a time of the server by the monotonic clock, in milliseconds */
  constructor(
    private readonly ticket: string,
    private readonly told: ToldGrant,
    private readonly timeAt: (key: string, serverUs: number) => number | undefined,
  ) {}

  grantOf(key: string, latestToken = -Infinity, turns: number): Grant | undefined {
    const { fencingToken, lastToken, boundUs } = this.told;
    if (fencingToken < latestToken || fencingToken > latestToken + TOKEN_LEAD_US) return undefined;
    if (lastToken - fencingToken >= turns) return undefined;
    const request = { key, owner: this.ticket, ttlMs: this.ttlMs };
    return new RedisGrant(request, fencingToken, lastToken, this.timeAt(key, boundUs));
  }
}

/** Notes the ttl of an extension that is about to be sent. */
export function noteTtl(grant: Grant, ttlMs: number): void {
  if (grant instanceof RedisGrant && ttlMs > grant.longestTtlMs) grant.longestTtlMs = ttlMs;
}

/** The longest that a lock may stand in Redis, in milliseconds from now. */
export function standsMs(grant: Grant): number {
  const ttlMs = grant instanceof RedisGrant ? grant.longestTtlMs : LONGEST_TTL_MS;
  return ttlMs + driftMs(ttlMs);
}

/** Advice for a node that does not vote because it may have forgotten locks. */
export const WAIT_FOR_VOTES =
  'Wait: a Redlock node that is new to this library, has restarted or has lost its data votes only when all locks that ' +
  'it may have forgotten have ended. In development set admission: false.';

/** Reads the answer to an attempt. Without a valid fencing token it is no grant, whatever program answers there. */
export function voteOf(reply: Reply, node: string): Vote {
  if (!Array.isArray(reply)) {
    const fencingToken = Number(reply);
    if (isToken(fencingToken)) return { status: 'granted', fencingToken };
  } else if (reply[1] === 'at' && reply.length === 3) {
    const fencingToken = Number(reply[0]);
    if (isToken(fencingToken)) return { status: 'granted', fencingToken, nodeTimeUs: Number(reply[2]) };
  } else if (reply[0] === WIPED) {
    const error = new NodeError(node, 'it has lost its data, so it does not vote yet', WAIT_FOR_VOTES);
    return { status: 'fault', error, mayHaveRun: false, disconnected: false, wiped: String(reply[1]) };
  } else {
    const refusal = refusalOf(reply[0], reply[1], reply[2]);
    if (refusal) return refusal;
  }
  return unexpected(node);
}

/** Reads the answer to an attempt of a waiter, see turn.lua. */
export function turnOf(reply: Reply, node: string): Vote {
  if (!Array.isArray(reply)) return unexpected(node);
  const gaveBack = Number(reply[1]) === 1 ? 'released' : 'gone';
  if (reply.length === 2) {
    const error = nodeError(node, String(reply[0]).replace(/\.$/, ''));
    return { status: 'fault', error, mayHaveRun: false, disconnected: false, gaveBack };
  }
  if (reply.length !== 6) return unexpected(node);
  const [isGranted, nodeTimeUs] = [Number(reply[0]), Number(reply[2])];
  if (isGranted === 1) {
    const [fencingToken, lastToken, boundUs] = reply.slice(3).map(Number) as [number, number, number];
    if (isToken(fencingToken) && isToken(lastToken) && lastToken >= fencingToken)
      return { status: 'granted', fencingToken, lastToken, boundUs, nodeTimeUs, gaveBack };
  } else {
    const refusal = refusalOf(reply[3], reply[4], reply[5]);
    const latestToken = Math.max(nodeTimeUs, readValue(String(reply[4])).fencingToken ?? 0);
    if (refusal) return { ...refusal, latestToken, nodeTimeUs, gaveBack };
  }
  return unexpected(node);
}

function refusalOf(pttl: ReplyPart, value: ReplyPart, wasGone: ReplyPart) {
  if (typeof value !== 'string' || Number.isNaN(Number(pttl))) return undefined;
  const { owner, isKept } = readValue(value);
  return {
    status: 'refused',
    remainingMs: remainingMs(pttl),
    owner,
    isKept,
    wasPassedOver: Number(wasGone) === 1 || undefined,
  } as const;
}

function unexpected(node: string): Fault {
  const error = new NodeError(node, 'unexpected answer to an acquire: expected a fencing token, or the holder');
  return { status: 'fault', error, mayHaveRun: true, disconnected: false };
}

function isToken(number: number): boolean {
  return number > 0 && Number.isSafeInteger(number);
}

export function extensionOf(reply: Reply): NodeExtension {
  return { status: ({ 1: 'extended', 2: 'restored', 0: 'absent' } as const)[Number(reply)] ?? 'foreign' };
}

export function initialisationOf(reply: Reply): NodeInitialisation {
  if (!Array.isArray(reply)) return { status: 'new' };
  const [status, what] = reply;
  return status === 'used' ? { status, key: String(what) } : { status: 'full', keys: Number(what) };
}

export function releaseOf(reply: Reply): NodeRelease {
  return { status: Number(reply) === 1 ? 'released' : 'gone' };
}

export function seizureOf(reply: Reply): NodeSeizure {
  return Array.isArray(reply) ? { status: 'taken', from: readValue(String(reply[1])).owner } : { status: 'absent' };
}

export function holdingOf(reply: Reply): Holding | undefined {
  if (!Array.isArray(reply)) return undefined;
  const [remaining, value, timeUs, ...waiting] = reply;
  const { owner, fencingToken, isKept } = readValue(String(value));
  // The token is the time of the grant, or up to the limit of votes ahead of it. A clock that was set back since does not say
  // how long ago that was.
  const heldForUs = fencingToken === undefined ? -Infinity : Number(timeUs) - fencingToken;
  const heldForMs = heldForUs >= -LIMIT_US ? Math.max(0, Math.floor(heldForUs / 1_000)) : undefined;
  return {
    holders: [{ owner, remainingMs: remainingMs(remaining), fencingToken, heldForMs, isKept }],
    waiting: waiting.length > 0 ? waiting.map(String) : undefined,
  };
}

type ReplyPart = number | string | undefined;

/** Reads the answer of PTTL. A key without a ttl, which another program must have written, never ends. */
function remainingMs(pttl: ReplyPart): number {
  return Number(pttl) < 0 ? Infinity : Number(pttl);
}

/** The value that at least `quorum` of the nodes gave. */
export function agreed<T>(values: readonly T[], quorum: number): T | undefined {
  return values.find((value) => values.filter((other) => other === value).length >= quorum);
}

export function isFault(answer: { status: string } | undefined): answer is Fault {
  return answer?.status === 'fault';
}
