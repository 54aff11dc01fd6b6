import { Redis } from 'ioredis';
import { onTestFinished } from 'vitest';
import type { LockService, RedisLockSettings } from '../../lib/index.js';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { SentinelGroup } from '../support/redis-sentinel.js';

/** A primary, its replicas and their Sentinels, for one test. */
export async function sentinelGroup(): Promise<SentinelGroup> {
  const group = await SentinelGroup.start();
  onTestFinished(() => group.stop());
  return group;
}

/** For a busy machine. */
const commandTimeoutMs = 10_000;

/** Locks of an application that finds its Redis by the Sentinels. */
export function locksOf({ options }: SentinelGroup, settings: RedisLockSettings = {}): Promise<LockService> {
  return openLocks({ redis: options, commandTimeoutMs, ...settings });
}

/** Locks of an application that is told which server is the primary. */
export function locksAt({ url }: RedisServer): Promise<LockService> {
  return openLocks({ redis: url, commandTimeoutMs });
}

/** A client that finds its Redis by the Sentinels, for the naive lock. */
export function clientOf({ options }: SentinelGroup): Redis {
  const client = new Redis(options).on('error', () => {});
  onTestFinished(() => client.disconnect());
  return client;
}
