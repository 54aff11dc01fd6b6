import { open as openTokenQueue } from './raw-token-queue.mjs';

/**
 * The raw queue, but a process that was handed the lock confirms it with one command before it counts as acquired. Any
 * hand-off needs that if its grants expire when nobody takes them. Three commands a turn between processes.
 */
export function open(terms) {
  return openTokenQueue({ ...terms, grantMs: 2_000 });
}
