import { createHash } from 'node:crypto';
import { quoted } from './printable.js';

/** The holder of a lock, as far as its owner value shows it. */
export interface LockHolder {
  /** The owner value as stored: unique for each acquisition. */
  owner: string;
  /** Host name of the holder's process; `undefined` if another program wrote the key. */
  host?: string;
  /** Process id of the holder on that host. */
  pid?: number;
}

/** A short name of an owner value that does not show it. */
export function digestOf(owner: string): string {
  return createHash('sha256').update(owner).digest('hex').slice(0, 16);
}

/** Reads host and pid out of an owner value; a value of another form is kept as it is. */
export function parseOwner(owner: string): LockHolder {
  const match = /^([\w.-]+)\/(\d+)\/[\w-]+\/[0-9a-z]+$/.exec(owner);
  return match ? { owner, host: match[1], pid: Number(match[2]) } : { owner };
}

/** The holder in words, for messages: `pid 17 on web-3`, or the bare owner value. */
export function describeHolder({ owner, host, pid }: LockHolder): string {
  return host === undefined ? `owner ${quoted(owner)}` : `pid ${pid} on ${host}`;
}
