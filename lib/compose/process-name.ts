import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';

/** Makes a name for one lock service of this process: `host/pid/random`. Host and pid tell an operator who holds a lock. */
export function processName(): string {
  const host =
    hostname()
      .replace(/[^\w.-]/g, '_')
      .slice(0, 64) || 'unknown';
  return `${host}/${process.pid}/${randomBytes(9).toString('base64url')}`;
}
