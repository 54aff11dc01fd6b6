import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';

/** A name for one lock service of this process: `host/pid/random`. Host and pid are there for people who ask who holds a lock. */
export function processName(): string {
  const host =
    hostname()
      .replace(/[^\w.-]/g, '_')
      .slice(0, 64) || 'unknown';
  return `${host}/${process.pid}/${randomBytes(9).toString('base64url')}`;
}
