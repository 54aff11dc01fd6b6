import { randomBytes } from 'node:crypto';
import { hostname } from 'node:os';

/** Makes a name for one lock service of this process: `host/pid/random`. Host and pid tell an operator who holds a lock. */
export function processName(): string {
  return `${hostName()}/${process.pid}/${randomBytes(9).toString('base64url')}`;
}

/** Returns the name of this host in owner values. */
export function hostName(): string {
  return (
    hostname()
      .replace(/[^\w.-]/g, '_')
      .slice(0, 64) || 'unknown'
  );
}
