import { beforeAll } from 'vitest';
import type { LockEvent, LockService, RedisLockSettings } from '../../lib/index.js';
import { openLocks } from './open-locks.js';
import { untilQueued } from './queue.js';
import { loadScripts } from './script-calls.js';
import { proxyTo, serverOfFile } from './stage.js';
import { ownerOn } from './stored.js';

/**
 * A Redis for all tests of a file, services on it, and what tests ask it about their locks.
 * @param settings of all its services
 */
export async function sceneOfFile(settings: RedisLockSettings = {}) {
  const server = await serverOfFile();
  beforeAll(() => loadScripts(server));
  /** For Redis, each service is another process. */
  const open = (more: RedisLockSettings = {}, redis = server.url) => openLocks({ redis, ...settings, ...more });
  const ownerOf = (key: string) => ownerOn(server, key);
  return {
    server,
    open,
    /** A service that reaches Redis through a proxy. */
    async openBehindProxy(more?: RedisLockSettings) {
      const proxy = await proxyTo(server);
      return { proxy, locks: await open(more, proxy.url) };
    },
    ownerOf,
    isFree: async (key: string) => (await ownerOf(key)) === null,
    leftMs: async (key: string) => Number(await server.command('PTTL', `lock:{${key}}`)),
    untilQueued: (key: string, count = 1) => untilQueued(server, key, count),
  };
}

/** The events of a service from now on. */
export function eventsOf(locks: LockService): LockEvent[] {
  const events: LockEvent[] = [];
  locks.events$.subscribe((event) => events.push(event));
  return events;
}

/** The messages of the warnings of a service from now on. */
export function warningsOf(locks: LockService): string[] {
  const warnings: string[] = [];
  locks.problems$.subscribe((event) => event.type === 'warning' && warnings.push(event.message));
  return warnings;
}
