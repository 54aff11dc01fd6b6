import { createHash } from 'node:crypto';
import { quoted } from './printable.js';

/** The holder of a lock, as far as its owner value shows it. */
export interface LockHolder {
  /** The owner value as stored: unique for each acquisition. For a detached lock its digest, as the value is a secret. */
  owner: string;
  /** Host name of the holder's process; `undefined` if another program wrote the key. */
  host?: string;
  /** Process id of the holder on that host. */
  pid?: number;
  /** The lock is detached: no process holds it, but whoever has its parcel. `host` and `pid` are those of the process that detached it. */
  detached?: true;
}

const OF_PROCESS = /^([\w.-]+)\/(\d+)\/[\w-]+\/[0-9a-z]+$/;
/** No part is longer than one that is written. The end is a UUID: its dashes tell it from the owner value of a process. */
const OF_PARCEL = /^detached\/([\w.-]{1,64})\/(\d{1,10})\/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** A short name of an owner value that does not show it. */
export function digestOf(owner: string): string {
  return createHash('sha256').update(owner).digest('hex').slice(0, 16);
}

/** Reads host and pid out of an owner value; a value of another form is kept as it is. That of a detached lock is not shown. */
export function parseOwner(owner: string): LockHolder {
  const [, host, pid] = OF_PROCESS.exec(owner) ?? [];
  if (host !== undefined) return { owner, host, pid: Number(pid) };
  const [, byHost, byPid] = OF_PARCEL.exec(owner) ?? [];
  if (byHost === undefined) return { owner };
  return { owner: digestOf(owner), host: byHost, pid: Number(byPid), detached: true };
}

/**
 * The owner value of a lock that is detached: nobody can guess it.
 * @param by that of the holder that detaches it
 * @param random a UUID from a secure source
 */
export function detachedOwner(by: string, random: string): string {
  const { host = 'unknown', pid = 0 } = parseOwner(by);
  return `detached/${host}/${pid}/${random}`;
}

/** Whether it is the owner value of a detached lock, and of no process: those are shown to many. */
export function isDetachedOwner(owner: string): boolean {
  return OF_PARCEL.test(owner);
}

/** The holder in words, for messages: `pid 17 on web-3`, or the bare owner value. */
export function describeHolder({ owner, host, pid, detached }: LockHolder): string {
  if (detached) return `the parcel ${owner}, detached by pid ${pid} on ${host}`;
  return host === undefined ? `owner ${quoted(owner)}` : `pid ${pid} on ${host}`;
}

/** One of several holders in words, and how many others there are: `pid 17 on web-3 and 2 others`. */
export function describeHolders(one: LockHolder, others: number): string {
  const more = others === 0 ? '' : ` and ${others} other${others === 1 ? '' : 's'}`;
  return describeHolder(one) + more;
}

/** Permits of a key in words, for messages: `2 permits of "mail"`. */
export function describePermits(key: string, permits: number): string {
  return `${permits} permit${permits === 1 ? '' : 's'} of ${quoted(key)}`;
}
