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
  /** The `note` of the call that took the lock, or detached it. Any program that can write to the store can write one. */
  note?: string;
}

/** A note at the end of an owner value, behind the last slash. */
const NOTE = /\.([\w-]{1,267})$/;
const OF_PROCESS = /^([\w.-]+)\/(\d+)\/[\w-]+\/[0-9a-z]+$/;
/** No part is longer than one that is written. The end is a UUID: its dashes tell it from the owner value of a process. */
const OF_PARCEL = /^detached\/([\w.-]{1,64})\/(\d{1,10})\/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** A short name of an owner value that does not show it. */
export function digestOf(owner: string): string {
  return createHash('sha256').update(owner).digest('hex').slice(0, 16);
}

/**
 * An owner value with the note of its call. UTF-16 makes it no longer than 386 characters, where a database has room for 512; of base64url
 * no store takes a character for its own.
 */
export function noted(owner: string, note: string | undefined): string {
  return note === undefined ? owner : `${owner}.${Buffer.from(note, 'utf16le').toString('base64url')}`;
}

/** The note in an owner value. */
export function noteIn(owner: string): string | undefined {
  const at = owner.indexOf('.', owner.lastIndexOf('/')); // most have none
  return at === -1 ? undefined : Buffer.from(owner.slice(at + 1), 'base64url').toString('utf16le');
}

/** Reads host, pid and note out of an owner value; a value of another form is kept as it is. That of a detached lock is not shown. */
export function parseOwner(owner: string): LockHolder {
  const withoutNote = owner.replace(NOTE, '');
  const note = withoutNote === owner ? {} : { note: noteIn(owner) };
  const [, host, pid] = OF_PROCESS.exec(withoutNote) ?? [];
  if (host !== undefined) return { owner, host, pid: Number(pid), ...note };
  const [, byHost, byPid] = OF_PARCEL.exec(withoutNote) ?? [];
  if (byHost === undefined) return { owner };
  return { owner: digestOf(owner), host: byHost, pid: Number(byPid), detached: true, ...note };
}

/**
 * The owner value of a lock that is detached: nobody can guess it.
 * @param by the owner value of the holder that detaches it
 * @param note by default that of the holder
 * @param random a UUID from a secure source
 */
export function detachedOwner(by: string, random: string, note = noteIn(by)): string {
  const { host = 'unknown', pid = 0 } = parseOwner(by);
  return noted(`detached/${host}/${pid}/${random}`, note);
}

/** Whether it is the owner value of a detached lock, and of no process: those are shown to many. */
export function isDetachedOwner(owner: string): boolean {
  return OF_PARCEL.test(owner.replace(NOTE, ''));
}

/** The holder in words, for messages: `pid 17 on web-3 (note "editing")`, or the bare owner value. */
export function describeHolder({ owner, host, pid, detached, note }: LockHolder): string {
  const said = note === undefined ? '' : ` (note ${quoted(note)})`;
  if (detached) return `the parcel ${owner}, detached by pid ${pid} on ${host}${said}`;
  return host === undefined ? `owner ${quoted(owner)}` : `pid ${pid} on ${host}${said}`;
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
