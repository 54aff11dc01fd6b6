import type { LockBackend } from '../core/backend/lock-backend.js';
import { MemoryBackend } from '../stores/memory/memory.backend.js';
import type { ResolvedOptions } from './redis-lock-options.js';

/**
 * Makes the backend for the options, and its clients; connects to nothing yet.
 * @param now the clock that `sentAt` is read from, in milliseconds
 * @param processName the beginning of the owner values of this service
 */
export async function openBackend(
  options: ResolvedOptions,
  now: () => number,
  processName: string,
): Promise<LockBackend> {
  const { backend } = options;
  if (backend.kind === 'memory') return new MemoryBackend(now);
  // Loaded when needed: applications whose locks are in memory load none of it, and need no ioredis.
  const { openRedis, openRedlock } = await import('./open-redis.js');
  return backend.kind === 'redis'
    ? openRedis(backend.source, options, now, processName)
    : openRedlock(backend.sources, options, now, processName);
}
