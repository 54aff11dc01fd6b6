import { NodeError } from '../../../api/errors.js';
import type { Holder, Holding, Waiting } from '../../../core/backend/lock-backend.js';
import type { Fault, Joined, NodeExtension, NodeRelease, NodeSeizure, NodeTransfer, Vote } from '../../node/answers.js';
import { nodeError } from '../client/advice.js';
import type { Reply } from '../scripts/script-runner.js';
import { readCrowd, readValue, type Crowd } from './lock-keys.js';

/** The first word in the reply of a Redlock node that has lost its data since it was admitted to vote. */
export const WIPED = 'wiped';

/** How far a node of a Redlock lets a proposed token be from its own time, in microseconds. */
export const LIMIT_US = 1_000_000;

/** The score of a sign `n` is minus a time in microseconds, whose digits below this one count the calls that wait: see take-place.lua. */
const CALLS = 1_000_000;

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
  if (reply.length !== 6 && reply.length !== 7) return unexpected(node);
  const [isGranted, nodeTimeUs] = [Number(reply[0]), Number(reply[2])];
  if (isGranted === 1) {
    const [fencingToken, lastToken, boundUs] = reply.slice(3).map(Number) as [number, number, number];
    if (isToken(fencingToken) && isToken(lastToken) && lastToken >= fencingToken)
      return { status: 'granted', fencingToken, lastToken, boundUs, nodeTimeUs, gaveBack };
  } else {
    const refusal = refusalOf(reply[3], reply[4], reply[5], reply[6]);
    const latestToken = Math.max(nodeTimeUs, readValue(String(reply[4])).fencingToken ?? 0);
    if (refusal) return { ...refusal, latestToken, nodeTimeUs, gaveBack };
  }
  return unexpected(node);
}

/** Reads the answer to an attempt to hold a lock together with others, see crowd.lua. */
export function crowdOf(reply: Reply, node: string): Vote | Joined {
  if (!Array.isArray(reply)) return unexpected(node);
  const gaveBack = Number(reply[1]) === 1 ? 'released' : 'gone';
  if (reply.length !== 7 && reply.length !== 8) return reply.length === 2 ? turnOf(reply, node) : unexpected(node);
  const [nodeTimeUs, smallestLimit] = [Number(reply[2]), Number(reply[6])];
  if (Number(reply[0]) === 1) {
    const [token, others, boundUs] = reply.slice(3, 6).map(Number) as [number, number, number];
    const fencingToken = token === 0 ? undefined : token;
    if (fencingToken === undefined || isToken(fencingToken))
      return { status: 'joined', fencingToken, others, boundUs, smallestLimit, nodeTimeUs, gaveBack };
    return unexpected(node);
  }
  const refusal = turnOf([...reply.slice(0, 6), reply[7]!], node);
  return refusal.status === 'refused' && smallestLimit > 0 ? { ...refusal, smallestLimit } : refusal;
}

/** @param others how many hold it besides; by default it is counted in the value */
function refusalOf(pttl: ReplyPart, value: ReplyPart, wasGone: ReplyPart, others?: ReplyPart) {
  if (typeof value !== 'string' || Number.isNaN(Number(pttl))) return undefined;
  const { owner, isKept } = readValue(value);
  return {
    status: 'refused',
    remainingMs: remainingMs(pttl),
    owner,
    others: Number(others ?? othersIn(value, remainingMs(pttl))) || undefined,
    isKept,
    wasPassedOver: Number(wasGone) === 1 || undefined,
  } as const;
}

/** How many hold a lock beside one of them, by the whole of its value, which stands until the time of the last of them is over. */
function othersIn(value: string, standsForMs: number): number {
  const ends = readCrowd(value)?.members.map(({ endsAt }) => endsAt) ?? [];
  const now = Math.max(...ends) - standsForMs;
  return Math.max(0, ends.filter((endsAt) => endsAt >= now).length - 1);
}

function unexpected(node: string, to = 'an acquire: expected a fencing token, or the holder'): Fault {
  const error = new NodeError(node, `unexpected answer to ${to}`);
  return { status: 'fault', error, mayHaveRun: true, disconnected: false };
}

function isToken(number: number): boolean {
  return number > 0 && Number.isSafeInteger(number);
}

export function extensionOf(reply: Reply): NodeExtension {
  return { status: ({ 1: 'extended', 2: 'restored', 0: 'absent' } as const)[Number(reply)] ?? 'foreign' };
}

export function transferOf(reply: Reply, node: string): NodeTransfer {
  const answer = Number(reply);
  if (answer === 0) return { status: 'absent' };
  if (answer === -1) return { status: 'foreign' };
  if (!isToken(answer)) return unexpected(node, 'a transfer: expected a fencing token');
  return { status: 'transferred', fencingToken: answer };
}

export function releaseOf(reply: Reply): NodeRelease {
  return { status: Number(reply) === 1 ? 'released' : 'gone' };
}

export function seizureOf(reply: Reply): NodeSeizure {
  if (!Array.isArray(reply)) return { status: 'absent' };
  const [kind, ...from] = reply.map(String) as [string, string, ...string[]];
  return { status: 'taken', from: kind === '2' ? from : [readValue(from[0] ?? '').owner] };
}

export function holdingOf(reply: Reply): Holding | undefined {
  if (!Array.isArray(reply)) return undefined;
  const [remaining, value, timeUs, calls, ...places] = reply;
  const waiting = places.length > 0 ? waitingOf(places) : undefined;
  const crowd = readCrowd(String(value));
  if (crowd) return crowdHolding(crowd, Number(timeUs), waiting);
  const { owner, fencingToken, isKept } = readValue(String(value));
  // The token is the time of the grant, or up to the limit of votes ahead of it. A clock that was set back since does not say
  // how long ago that was.
  const heldForUs = fencingToken === undefined ? -Infinity : Number(timeUs) - fencingToken;
  const heldForMs = heldForUs >= -LIMIT_US ? Math.max(0, Math.floor(heldForUs / 1_000)) : undefined;
  return {
    holders: [
      {
        owner,
        remainingMs: remainingMs(remaining),
        fencingToken,
        heldForMs,
        isKept,
        calls: calls === '' ? undefined : Number(calls),
      },
    ],
    waiting,
  };
}

/** @param places the ticket of each, and the score by which its process has told how many of its calls wait, or '' */
function waitingOf(places: readonly (string | number)[]): Waiting[] {
  return Array.from({ length: places.length / 2 }, (_, at) => {
    const told = String(places[2 * at + 1]);
    return { ticket: String(places[2 * at]), calls: told === '' ? undefined : -Number(told) % CALLS };
  });
}

/** Whose time is over holds it no more. */
function crowdHolding(
  { mode, fencingToken, members }: Crowd,
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

type ReplyPart = number | string | undefined;

/** Reads the answer of PTTL. A key without a ttl, which another program must have written, never ends. */
function remainingMs(pttl: ReplyPart): number {
  return Number(pttl) < 0 ? Infinity : Number(pttl);
}
