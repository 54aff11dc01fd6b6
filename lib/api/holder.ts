import { createHash } from 'node:crypto';
import { quoted } from './printable.js';

/** The holder of a lock, as read from its owner value. */
export interface LockHolder {
  /** The stored owner value, unique for each acquisition. For a detached lock, the digest of the owner value, which is a secret. */
  owner: string;
  /** Host name of the holder's process; `undefined` if another program wrote the key. */
  host?: string;
  /** Process id of the holder on that host. */
  pid?: number;
  /**
   * Set if the lock is detached: no process holds it, and any process that has its parcel can adopt it. `host` and `pid` name the
   * process that detached it.
   */
  detached?: true;
  /** The `note` of the call that took the lock, or detached it. Any program that can write to the store can write one. */
  note?: string;
}

/** The note at the end of an owner value, after the last slash. */
const NOTE = /\.([\w-]{1,267})$/;
const PROCESS_OWNER = /^([\w.-]+)\/(\d+)\/[\w-]+\/[0-9a-z]+$/;
/** Limits each part to the length that this library writes. Only the owner value of a parcel ends with a UUID. */
const PARCEL_OWNER = /^detached\/([\w.-]{1,64})\/(\d{1,10})\/[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}$/;

/** Returns a digest that identifies an owner value without revealing it. */
export function digestOf(owner: string): string {
  return createHash('sha256').update(owner).digest('hex').slice(0, 16);
}

/**
 * Appends the note of a call to an owner value. The result has at most 386 characters; a table has room for 512. In base64url, no
 * character of the note has a meaning in any store.
 */
export function noted(owner: string, note: string | undefined): string {
  return note === undefined ? owner : `${owner}.${Buffer.from(note, 'utf16le').toString('base64url')}`;
}

/** Reads the note from an owner value. */
export function noteIn(owner: string): string | undefined {
  const at = owner.indexOf('.', owner.lastIndexOf('/')); // most have none
  return at === -1 ? undefined : Buffer.from(owner.slice(at + 1), 'base64url').toString('utf16le');
}

/** Reads host, pid and note from an owner value. Keeps a value of another form, and replaces the secret of a detached lock by its digest. */
export function parseOwner(owner: string): LockHolder {
  const withoutNote = owner.replace(NOTE, '');
  const note = withoutNote === owner ? {} : { note: noteIn(owner) };
  const [, host, pid] = PROCESS_OWNER.exec(withoutNote) ?? [];
  if (host !== undefined) return { owner, host, pid: Number(pid), ...note };
  const [, byHost, byPid] = PARCEL_OWNER.exec(withoutNote) ?? [];
  if (byHost === undefined) return { owner };
  return { owner: digestOf(owner), host: byHost, pid: Number(byPid), detached: true, ...note };
}

/**
 * Makes the owner value of a detached lock, which nobody can guess.
 * @param by the owner value of the holder that detaches it
 * @param note by default the note of the holder
 * @param random a UUID from a secure source
 */
export function detachedOwner(by: string, random: string, note = noteIn(by)): string {
  const { host = 'unknown', pid = 0 } = parseOwner(by);
  return noted(`detached/${host}/${pid}/${random}`, note);
}

/** Whether this is the owner value of a detached lock: unlike the owner value of a process, it is a secret. */
export function isDetachedOwner(owner: string): boolean {
  return PARCEL_OWNER.test(owner.replace(NOTE, ''));
}

/** Describes a holder for messages: `pid 17 on web-3 (note "editing")`, or the bare owner value. */
export function describeHolder({ owner, host, pid, detached, note }: LockHolder): string {
  const noteText = note === undefined ? '' : ` (note ${quoted(note)})`;
  if (detached) return `the parcel ${owner}, detached by pid ${pid} on ${host}${noteText}`;
  return host === undefined ? `owner ${quoted(owner)}` : `pid ${pid} on ${host}${noteText}`;
}

/** Describes one holder and counts the others: `pid 17 on web-3 and 2 others`. */
export function describeHolders(one: LockHolder, others: number): string {
  const more = others === 0 ? '' : ` and ${others} other${others === 1 ? '' : 's'}`;
  return describeHolder(one) + more;
}

/** Describes permits of a key for messages: `2 permits of "mail"`. */
export function describePermits(key: string, permits: number): string {
  return `${permits} permit${permits === 1 ? '' : 's'} of ${quoted(key)}`;
}
