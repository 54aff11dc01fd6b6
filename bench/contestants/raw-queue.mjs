import { open as openRaw } from './raw.mjs';
import { LocalQueue } from './local-queue.mjs';
import { open as openTokenQueue } from './raw-token-queue.mjs';

/**
 * The leanest handwritten lock for calls that wait. In one process: a local FIFO in front of the raw client, two
 * commands a turn. Between processes: a queue in Redis.
 */
export async function open(terms) {
  if (terms.processes > 1) return openTokenQueue(terms);
  const raw = await openRaw(terms);
  const queue = new LocalQueue();
  return {
    async acquire(key) {
      await queue.enter(key);
      return raw.acquire(key);
    },
    async release(lock) {
      await raw.release(lock);
      queue.leave(lock.key);
    },
    close: raw.close,
  };
}
