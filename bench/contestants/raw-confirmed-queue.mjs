import { open as openTokenQueue } from './raw-token-queue.mjs';

/**
 * The raw queue, except that who was handed the lock confirms it with one command before it counts as acquired: what any
 * hand-off needs whose grants run out by themselves when nobody takes them. Three commands a turn between processes.
 */
export function open(terms) {
  return openTokenQueue({ ...terms, grantMs: 2_000 });
}
