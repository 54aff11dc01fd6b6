import type { LockBackend } from '../core/backend/lock-backend.js';
import { Clock, monotonic } from '../core/time/clock.js';
import { MemoryBackend } from '../stores/memory/memory.backend.js';
import { haveSameServers } from '../stores/redis/options.js';
import {
  differingIn,
  openService,
  type ComposedLocks,
  type Notice,
  type OpenedLocks,
  type Opening,
} from './composition.js';
import { processName } from './process-name.js';
import { resolveOptions, type RedisLockModuleOptions, type ResolvedOptions } from './redis-lock-options.js';

/**
 * Opens the locks of one registration on Redis, on a Redlock, or in memory.
 * @param options the options of `RedisLockModule.forRoot`
 * @throws LockOptionsError
 * @throws LockUnavailableError when Redis, or a majority of the nodes, cannot be reached
 */
export async function openLocks(
  options: RedisLockModuleOptions,
  { registration, ...opening }: Opening & { registration?: string } = {},
): Promise<OpenedLocks> {
  return composeLocks(options, registration).open(opening);
}

/** The composition of `RedisLockModule`. @throws LockOptionsError */
export function composeLocks(options: RedisLockModuleOptions, registration?: string): ComposedLocks {
  return new RedisLocks(resolveOptions(options, registration));
}

class RedisLocks implements ComposedLocks {
  constructor(private readonly options: ResolvedOptions) {}

  get registration(): string {
    return this.options.registration;
  }

  differencesFrom(other: ComposedLocks): string[] {
    const { backend, ...settings } = this.options;
    if (!(other instanceof RedisLocks)) return [backend.kind];
    const { backend: otherBackend, ...otherSettings } = other.options;
    const differing = differingIn(settings, otherSettings);
    return haveSameServers(backend, otherBackend)
      ? differing
      : [...new Set([backend.kind, otherBackend.kind, ...differing])];
  }

  async open(opening?: Opening): Promise<OpenedLocks> {
    const { options, registration } = this;
    const { backend: servers } = options;
    const now = servers.kind === 'memory' ? monotonic : new Clock().now;
    const name = processName();
    const backend = await openBackend(options, now, name);
    const settings = { options, registration, now, processName: name };
    const { service, notices } = await openService(backend, settings, opening);
    return {
      service,
      notices: servers.kind === 'redlock' ? [...evenNumber(servers.sources.length), ...notices] : notices,
    };
  }
}

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

function evenNumber(count: number): Notice[] {
  if (count % 2 === 1) return [];
  const message = `redlock has ${count} nodes, which tolerate no more failures than ${count - 1}: use an odd number.`;
  return [{ level: 'warn', message }];
}
