import { NodeError } from '../../../api/errors.js';
import type {
  AcquireOutcome,
  AcquireRequest,
  ExtendOutcome,
  ExtendRequest,
  Grant,
  Hold,
  Holder,
  Holding,
  ReleaseOutcome,
  Taken,
  Transfer,
  TransferOutcome,
  Waiting,
} from '../../../core/backend/lock-backend.js';
import type { ServerClock } from '../../../core/time/server-clock.js';
import { hintOf } from '../../node/messages.js';
import { failed, StoredGrant, type Answer, type Failed, type ReleaseResult } from '../../node/server.backend.js';
import { nodeError } from '../client/advice.js';
import * as lua from '../scripts/lua.js';
import type { Script } from '../scripts/script.js';
import type { Reply } from '../scripts/script-runner.js';
import {
  holdArgs,
  ownerPart,
  readHolderSet,
  readValue,
  tokenText,
  type HolderSet,
  type LockKeys,
  type Sign,
} from './lock-keys.js';

// The calls of all scripts, and the readers of their replies. The header of each file in scripts/lua describes keys, arguments and replies.

/** How far a proposed token may differ from the time of a Redlock node, in microseconds. */
export const MAX_PROPOSAL_DISTANCE_US = 1_000_000;

/** The score of an `n` sign modulo this number is minus the number of waiting calls: see take-place.lua. */
const SIGN_MODULUS = 1_000_000;

/** The first word in the reply of a Redlock node that has lost its data since it was admitted to vote. */
export const WIPED = 'wiped';

/** Advice for a node that does not vote because it may have forgotten locks. */
export const WAIT_FOR_VOTES =
  'Wait: a Redlock node that is new to this library, has restarted or has lost its data votes only after all locks that ' +
  'it may have forgotten have ended. In development set admission: false.';

/** The same scripts for calls that also release a lock: they are sent together with the releases. */
export const RELEASE_AND_TURN: Script = { ...lua.TURN, name: 'release-and-turn', order: lua.RELEASE.order };
export const RELEASE_AND_ACQUIRE_TOGETHER: Script = {
  ...lua.ACQUIRE_TOGETHER,
  name: 'release-and-acquire-together',
  order: lua.RELEASE.order,
};

/** A script, with the keys and arguments of one operation. */
export interface LockCall {
  readonly script: Script;
  readonly keys: readonly string[];
  readonly args: readonly (string | number)[];
}

/** The arguments of an attempt that its request does not contain. */
export interface Attempt {
  readonly sign: Sign;
  /** The owner of the lock to release in the same step. */
  readonly ownerToRelease?: string;
  /** Its place in the queue. */
  readonly entry?: string;
  /** Its arrival time, by the clock of the server in microseconds; undefined if it is unknown. */
  readonly number?: number;
}

/** The context of a reply to an attempt. */
export interface SentAttempt {
  readonly node: string;
  readonly request: AcquireRequest;
  readonly sentAt: number;
  /** The time when it was sent, by the monotonic clock. */
  readonly askedAt: number;
  readonly receivedAt: number;
  /** Identifies the connection of the reply. */
  readonly connection: unknown;
  readonly clock: ServerClock;
  /** Called when an earlier place was skipped because the message about its turn did not arrive. */
  readonly onPassedOver: () => void;
}

/** The vote of a node of a Redlock. */
export type Vote =
  | {
      status: 'granted';
      fencingToken: number;
      /** The time of the node in microseconds, if the token differs from the proposal. */
      nodeTimeUs?: number;
    }
  | {
      status: 'refused';
      owner: string;
      remainingMs: number;
      isKept?: boolean;
      /** Whether its earlier place was skipped because the message about its turn did not arrive. */
      wasPassedOver?: boolean;
    }
  | (Failed & {
      /** The epoch of the node's admission, if the node has lost its data since then. */
      wiped?: string;
    });

/** The admission of a node to vote, after a check for restarts. */
export interface Admission {
  /** Changes when the server loses data. */
  epoch: string;
}

/** The time since which a node knows all locks that it granted, as the node answers. */
export interface NodeAdmission {
  status: 'admitted';
  epoch: string;
  /** How long it has known all its locks. */
  sinceMs: number;
  /** The longest ttl that clients have reported to it. */
  longestMs: number;
  /** The time of the node in microseconds. */
  timeUs: number;
}

/** `acquire.lua` or `acquire-in-order.lua`: acquires a free lock exclusively. */
export function acquireCall(keys: LockKeys, { key, ttlMs, owner, inOrder }: AcquireRequest): LockCall {
  const args = [ttlMs, ownerPart(owner)];
  if (inOrder) return { script: lua.ACQUIRE_IN_ORDER, keys: [keys.fence(key), keys.lock(key), keys.queue(key)], args };
  return { script: lua.ACQUIRE, keys: [keys.fence(key), keys.lock(key)], args };
}

/** Whether the lock has a queue, so that `turn.lua` must serve it in order. */
export function isForQueue(reply: Reply): boolean {
  return reply === 'queue';
}

/** A reply without a valid fencing token is not a grant: another program may have answered. */
export function readAcquire(
  reply: Reply,
  node: string,
  request: AcquireRequest,
  sentAt: number,
): Answer<AcquireOutcome> {
  if (Array.isArray(reply)) {
    const [kind, leftMs, value] = reply;
    if (kind !== 'refused' || !isRefusal(leftMs, value)) return unexpected(node);
    const { owner, isKept } = readValue(value);
    const remainingMs = remainingOf(leftMs);
    const others = othersIn(value, remainingMs) || undefined;
    return { status: 'contended', owner, others, remainingMs, isKept, queued: false };
  }
  const fencingToken = Number(reply);
  if (!isToken(fencingToken)) return unexpected(node);
  return { status: 'acquired', grant: new StoredGrant(request, fencingToken, fencingToken), sentAt };
}

/** `turn.lua`: the attempt of a waiter for an exclusive lock. */
export function turnCall(
  keys: LockKeys,
  { key, owner, ttlMs, turns = 1, place }: AcquireRequest,
  { sign, ownerToRelease, entry = '', number }: Attempt,
): LockCall {
  const give = ownerToRelease === undefined ? '' : ownerPart(ownerToRelease);
  return {
    script: ownerToRelease === undefined ? lua.TURN : RELEASE_AND_TURN,
    keys: [keys.fence(key), keys.lock(key), keys.queue(key)],
    args: [sign, give, ownerPart(owner), ttlMs, turns, entry, number ?? '', place?.isTaken ? 1 : 0, place?.calls ?? 0],
  };
}

export function readTurn(reply: Reply, asked: SentAttempt): Answer<AcquireOutcome> {
  if (!Array.isArray(reply) || reply[0] !== 'granted') return readNoGrant(reply, asked);
  const { node, request, clock, sentAt } = asked;
  const [, , us, first, last, bound] = reply;
  const [fencingToken, lastToken] = [Number(first), Number(last)];
  if (!hasLearned(us, asked) || !isToken(fencingToken) || !isToken(lastToken) || lastToken < fencingToken)
    return unexpected(node);
  const grant = new StoredGrant(request, fencingToken, lastToken, clock.monotonicAt(Number(bound)));
  return { status: 'acquired', grant, sentAt };
}

/** `acquire-together.lua`: the attempt of a waiter for a shared lock or permits. */
export function acquireTogetherCall(
  keys: LockKeys,
  hold: Exclude<Hold, { mode: 'exclusive' }>,
  { key, owner, ttlMs, place, others = [] }: Omit<AcquireRequest, 'hold'>,
  { sign, ownerToRelease, entry = '', number }: Attempt,
): LockCall {
  const placed = place?.isTaken ? 1 : 0;
  const waiting = [entry, number ?? '', placed, place?.calls ?? 0];
  return {
    script: ownerToRelease === undefined ? lua.ACQUIRE_TOGETHER : RELEASE_AND_ACQUIRE_TOGETHER,
    keys: keysToHandOver(keys, key),
    args: [sign, ownerToRelease ?? '', owner, ttlMs, ...holdArgs(hold), ...waiting, others.join(' ')],
  };
}

export function readAcquireTogether(reply: Reply, asked: SentAttempt): Answer<AcquireOutcome> {
  if (!Array.isArray(reply) || reply[0] !== 'granted') return readNoGrant(reply, asked);
  const { node, request, clock, sentAt } = asked;
  const [, , us, token, joined, bound, smallest] = reply;
  const hasNoToken = Number(token) === 0; // permits have no token
  if (!hasLearned(us, asked) || !(hasNoToken || isToken(Number(token)))) return unexpected(node);
  const fencingToken = hasNoToken ? undefined : Number(token);
  const nobodyBefore = clock.monotonicAt(Number(bound));
  const grantTo = (owner: string) => new StoredGrant({ ...request, owner }, fencingToken, fencingToken, nobodyBefore);
  const others = request.others?.slice(0, Number(joined)).map(grantTo);
  const smallerLimit = smallerLimitFor(request, Number(smallest));
  return { status: 'acquired', grant: grantTo(request.owner), others, smallerLimit, sentAt };
}

/** `acquire-together.lua` without a new owner: releases a shared lock or permits. */
export function releaseTogetherCall(
  keys: LockKeys,
  hold: Exclude<Hold, { mode: 'exclusive' }>,
  { key, owner }: Grant,
  sign: Sign,
): LockCall {
  return acquireTogetherCall(keys, hold, { key, owner: NO_OWNER, ttlMs: 0 }, { sign, ownerToRelease: owner });
}

/** Reads any other reply of `turn.lua` or `acquire-together.lua`. */
function readNoGrant(reply: Reply, asked: SentAttempt): Answer<AcquireOutcome> {
  const { node, request, sentAt, connection, onPassedOver } = asked;
  if (!Array.isArray(reply)) return unexpected(node);
  if (reply[0] === 'failed') return failed(nodeError(node, String(reply[2]).replace(/\.$/, '')));
  const [kind, , us, leftMs, value, wasGone, besides, smallest] = reply;
  if (kind !== 'refused' || !hasLearned(us, asked) || !isRefusal(leftMs, value)) return unexpected(node);
  const { place } = request;
  const { owner, fencingToken = 0, isKept } = readValue(value);
  const isLost = Number(wasGone) === 1;
  if (isLost) onPassedOver();
  return {
    status: 'contended',
    owner,
    others: Number(besides) || undefined,
    remainingMs: remainingOf(leftMs),
    isKept,
    smallerLimit: smallerLimitFor(request, Number(smallest)),
    queued: place !== undefined,
    hint: place && hintOf(place, sentAt, connection, Math.max(Number(us), fencingToken), isLost),
  };
}

/** Reads the result of the release in `turn.lua` or `acquire-together.lua`. */
export function readReleaseResult(reply: Reply): ReleaseResult | undefined {
  if (!Array.isArray(reply)) return undefined;
  return Number(reply[1]) === 1 ? 'released' : 'gone';
}

/** `vote.lua`, or `vote-or-queue.lua` for a waiter: an attempt on one node of a Redlock. */
export function voteCall(
  keys: LockKeys,
  { key, ttlMs, place }: AcquireRequest,
  { vote, epoch = '', entry = '' }: { readonly vote: string; readonly epoch?: string; readonly entry?: string },
): LockCall {
  const [admission, lock, fence] = [keys.admission(key), keys.lock(key), keys.fence(key)];
  if (!place) return { script: lua.VOTE, keys: [admission, lock, fence], args: [epoch, ttlMs, vote] };
  return {
    script: lua.VOTE_OR_QUEUE,
    keys: [admission, lock, fence, keys.queue(key)],
    args: [epoch, ttlMs, vote, entry, place.isTaken ? 1 : 0, place.calls],
  };
}

/** A reply without a valid fencing token is not a grant: another program may have answered. */
export function readVote(reply: Reply, node: string): Vote {
  if (!Array.isArray(reply)) {
    const fencingToken = Number(reply);
    return isToken(fencingToken) ? { status: 'granted', fencingToken } : unexpected(node);
  }
  const [kind, ...rest] = reply;
  if (kind === 'at') {
    const [fencingToken, nodeTimeUs] = rest.map(Number) as [number, number];
    if (isToken(fencingToken)) return { status: 'granted', fencingToken, nodeTimeUs };
  }
  if (kind === 'refused') {
    const [leftMs, value, wasGone] = rest;
    if (isRefusal(leftMs, value)) {
      const { owner, isKept } = readValue(value);
      const wasPassedOver = Number(wasGone) === 1 || undefined;
      return { status: 'refused', owner, remainingMs: remainingOf(leftMs), isKept, wasPassedOver };
    }
  }
  if (kind === WIPED) {
    const error = new NodeError(node, 'it has lost its data, so it does not vote yet', WAIT_FOR_VOTES);
    return { ...failed(error), wiped: String(rest[0]) };
  }
  return unexpected(node);
}

/** `admit.lua`. @param longestMs the longest ttl in use, as far as the caller knows */
export function admitCall(keys: LockKeys, run: string, uptimeS: number, longestMs: number): LockCall {
  return { script: lua.ADMIT, keys: [keys.admission()], args: [run, uptimeS, longestMs] };
}

export function readAdmission(reply: Reply): NodeAdmission {
  const [epoch, ...numbers] = reply as (string | number)[];
  const [sinceMs, longestMs, timeUs] = numbers.map(Number) as [number, number, number];
  return { status: 'admitted', epoch: String(epoch), sinceMs, longestMs, timeUs };
}

/** `raise-fence.lua`: raises the fencing counter of a lock to a token. */
export function raiseFenceCall(keys: LockKeys, { key, owner }: Grant, fencingToken: number): LockCall {
  const args = [ownerPart(owner), tokenText(fencingToken)];
  return { script: lua.RAISE_FENCE, keys: [keys.lock(key), keys.fence(key)], args };
}

export function readRaise(reply: Reply): { status: 'raised' | 'gone' } {
  return { status: Number(reply) === 1 ? 'raised' : 'gone' };
}

/** `extend.lua`; `extend-and-report.lua` if calls wait for the lock; `extend-together.lua` for a shared lock or permits. */
export function extendCall(keys: LockKeys, { grant, ttlMs, waiting }: ExtendRequest): LockCall {
  const { key, owner, hold } = grant;
  const lock = keys.lock(key);
  if (hold && hold.mode !== 'exclusive') return { script: lua.EXTEND_TOGETHER, keys: [lock], args: [ttlMs, owner] };
  if (!waiting) return { script: lua.EXTEND, keys: [lock], args: [ttlMs, ownerPart(owner)] };
  const args = [ttlMs, ownerPart(owner), waiting.calls, waiting.forMs];
  return { script: lua.EXTEND_AND_REPORT, keys: [lock, keys.calls(key)], args };
}

/** `restore.lua`: extends a lock, and writes it again with the token of its grant if it is missing. */
export function restoreCall(keys: LockKeys, { key, owner, fencingToken = 0 }: Grant, ttlMs: number): LockCall {
  return { script: lua.RESTORE, keys: [keys.lock(key)], args: [ttlMs, ownerPart(owner), tokenText(fencingToken)] };
}

/** Reads the reply of all scripts that extend or restore a lock. */
export function readExtension(reply: Reply, sentAt: number): Answer<ExtendOutcome> {
  const answer = Number(reply);
  if (answer === 1 || answer === 2) return { status: 'extended', sentAt };
  return { status: 'lost', reason: answer === 0 ? 'expired' : 'stolen' };
}

/** `transfer.lua`, or `downgrade.lua` if the new owner shares the lock. */
export function transferCall(keys: LockKeys, { key, from, to, ttlMs, mints, atLeast, hold }: Transfer): LockCall {
  if (hold?.mode === 'shared')
    return { script: lua.DOWNGRADE, keys: keysToHandOver(keys, key), args: [ownerPart(from), to, ttlMs] };
  const args = [ownerPart(from), ownerPart(to), ttlMs, mints ? 1 : 0, atLeast ? 1 : 0];
  return { script: lua.TRANSFER, keys: [keys.fence(key), keys.lock(key)], args };
}

export function readTransfer(
  reply: Reply,
  node: string,
  { key, to, ttlMs, hold }: Transfer,
  sentAt: number,
): Answer<TransferOutcome> {
  const answer = Number(reply);
  if (answer === 0) return { status: 'lost', reason: 'expired' };
  if (answer === -1) return { status: 'lost', reason: 'stolen' };
  if (!isToken(answer)) return unexpected(node, 'a transfer: expected a fencing token');
  return { status: 'transferred', grant: new StoredGrant({ key, owner: to, ttlMs, hold }, answer), sentAt };
}

/** `release.lua`: releases an exclusive lock. */
export function releaseCall(keys: LockKeys, key: string, owner: string): LockCall {
  return { script: lua.RELEASE, keys: keysToHandOver(keys, key), args: [ownerPart(owner)] };
}

/** `keep.lua`: keeps a lock after the work of its owner has ended. */
export function keepCall(keys: LockKeys, key: string, owner: string, forMs: number): LockCall {
  return { script: lua.KEEP, keys: [keys.lock(key)], args: [forMs, ownerPart(owner)] };
}

/** `withdraw.lua`: gives up a place, and a lock that was handed over to it. @param entry '' for a ticket without a place */
export function withdrawCall(keys: LockKeys, key: string, ticket: string, entry: string): LockCall {
  return { script: lua.WITHDRAW, keys: keysToHandOver(keys, key), args: [ownerPart(ticket), entry] };
}

/** Reads the reply of all scripts that release or keep a lock, or give up a place. */
export function readRelease(reply: Reply): Answer<ReleaseOutcome> {
  return { status: Number(reply) === 1 ? 'released' : 'gone' };
}

/** `force-release.lua`. @param from '' for any owner */
export function forceReleaseCall(keys: LockKeys, key: string, from: string): LockCall {
  return { script: lua.FORCE_RELEASE, keys: keysToHandOver(keys, key), args: [keys.inbox(), key, from] };
}

export function readTaken(reply: Reply): Taken | undefined {
  if (!Array.isArray(reply)) return undefined;
  const [kind, ...from] = reply.map(String);
  return { from: kind === 'together' ? from : [readValue(from[0] ?? '').owner] };
}

/** `inspect.lua`. */
export function inspectCall(keys: LockKeys, key: string): LockCall {
  return { script: lua.INSPECT, keys: [keys.lock(key), keys.queue(key), keys.calls(key)], args: [] };
}

export function readHolding(reply: Reply): Holding | undefined {
  if (!Array.isArray(reply)) return undefined;
  const [remaining, value, timeUs, calls, ...places] = reply;
  const waiting = places.length > 0 ? waitingOf(places) : undefined;
  const holderSet = readHolderSet(String(value));
  if (holderSet) return holdingOfSet(holderSet, Number(timeUs), waiting);
  const { owner, fencingToken, isKept } = readValue(String(value));
  // The token is the time of the grant, or at most the limit of proposals ahead of it. If the clock was set back since then, the time of
  // the grant is unknown.
  const heldForUs = fencingToken === undefined ? -Infinity : Number(timeUs) - fencingToken;
  const heldForMs = heldForUs >= -MAX_PROPOSAL_DISTANCE_US ? Math.max(0, Math.floor(heldForUs / 1_000)) : undefined;
  return {
    holders: [
      {
        owner,
        remainingMs: remainingOf(remaining),
        fencingToken,
        heldForMs,
        isKept,
        calls: calls === '' ? undefined : Number(calls),
      },
    ],
    waiting,
  };
}

/** @param places for each place its ticket, and the score of the `n` sign of its process, or '' */
function waitingOf(places: readonly (string | number)[]): Waiting[] {
  return Array.from({ length: places.length / 2 }, (_, at) => {
    const score = String(places[2 * at + 1]);
    return { ticket: String(places[2 * at]), calls: score === '' ? undefined : -Number(score) % SIGN_MODULUS };
  });
}

/** Leaves out expired holders. */
function holdingOfSet(
  { mode, fencingToken, members }: HolderSet,
  timeUs: number,
  waiting?: Waiting[],
): Holding | undefined {
  const now = Math.floor(timeUs / 1_000);
  const holders = members
    .filter(({ endsAt }) => endsAt >= now)
    .map(({ owner, endsAt, permits, limit }): Holder => {
      const held = mode === 'permits' ? { permits, limit } : {};
      return { owner, remainingMs: endsAt - now, fencingToken, ...held };
    });
  const [first, ...others] = holders;
  return first && { mode, holders: [first, ...others], waiting };
}

/** The keys of a script that may hand a lock over. */
function keysToHandOver(keys: LockKeys, key: string): string[] {
  return [keys.fenceToHandOver(key), keys.lock(key), keys.queue(key)];
}

/** The owner value of a call that only releases. */
const NO_OWNER = '';

type ReplyPart = number | string | undefined;

/** Whether this has the form of a refusal: another program may have answered. */
function isRefusal(leftMs: ReplyPart, value: ReplyPart): value is string {
  return typeof value === 'string' && !Number.isNaN(Number(leftMs));
}

/** Counts the other holders in a complete value. @param remainingMs the remaining time of the last holder */
function othersIn(value: string, remainingMs: number): number {
  const ends = readHolderSet(value)?.members.map(({ endsAt }) => endsAt) ?? [];
  const now = Math.max(...ends) - remainingMs;
  return Math.max(0, ends.filter((endsAt) => endsAt >= now).length - 1);
}

/** Returns the smallest limit of the holders if it is below the limit of the request. @param smallestLimit 0 if there is none */
function smallerLimitFor({ hold }: AcquireRequest, smallestLimit: number): number | undefined {
  return hold.mode === 'permits' && smallestLimit > 0 && smallestLimit < hold.limit ? smallestLimit : undefined;
}

/** Reads the reply of PTTL. A key without a ttl comes from another program, and never expires. */
function remainingOf(pttl: ReplyPart): number {
  return Number(pttl) < 0 ? Infinity : Number(pttl);
}

function isToken(number: number): boolean {
  return number > 0 && Number.isSafeInteger(number);
}

/** Learns the time of the server. Call it before converting other times of the reply. @returns false for an invalid time */
function hasLearned(us: ReplyPart, { clock, askedAt, receivedAt }: SentAttempt): boolean {
  const serverUs = Number(us);
  if (!(serverUs > 0 && Number.isFinite(serverUs))) return false;
  clock.learn(serverUs, askedAt, receivedAt);
  return true;
}

function unexpected(node: string, to = 'an acquire: expected a fencing token, or the holder'): Failed {
  return failed(new NodeError(node, `unexpected answer to ${to}`), true);
}
