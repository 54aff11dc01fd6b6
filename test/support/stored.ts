import { LockKeys, readHolderSet, readValue, type Member } from '../../lib/stores/redis/node/lock-keys.js';
import type { RedisServer } from './redis-server.js';
import { until } from './until.js';

/** The fencing counter of one server, which all its locks share. */
export const COUNTER = 'lock:fence';

/** The fencing counter of a lock on a node of a Redlock. */
export function shardOf(key: string): string {
  return new LockKeys('lock', 'sharded').fence(key);
}

/** Waits until every node of a Redlock has voted for a lock: slower nodes may do so long after the grant. */
export async function votedOn(nodes: readonly RedisServer[], key: string): Promise<void> {
  const hasVoted = (node: RedisServer) => node.command('GET', shardOf(key));
  await until(async () => (await Promise.all(nodes.map(hasVoted))).every(Boolean), {
    what: `all nodes have voted for "${key}"`,
  });
}

/**
 * Whether a key is a fencing counter: `lock:fence` of a server, `lock:fence{tag}` of a slot, or `lock:fence:<n>` of a
 * shard, after any prefix. No name of a lock looks like that, whatever its key is.
 */
export function isCounter(name: string): boolean {
  return /^[^{]+:fence(:\d+|\{[0-9a-z]+\})?$/.test(name);
}

/** The keys of a server without fencing counters, and without the records of a Redlock node about its restarts. */
export async function keysOfLocks(server: RedisServer, pattern?: string): Promise<string[]> {
  return (await server.keys(pattern)).filter((name) => !isCounter(name) && name !== 'lock:admission');
}

/** The owner in the value of a lock, without token and mark; null if nobody holds it. */
export function ownerIn(value: unknown): string | null {
  return value === null ? null : readValue(value as string).owner;
}

/** The holder of a lock, as the server knows it; null if there is none. */
export async function ownerOn(server: RedisServer, key: string): Promise<string | null> {
  return ownerIn(await server.command('GET', `lock:{${key}}`));
}

/**
 * The holders that share a lock, as the server knows them: including holders whose time passed a moment ago. Empty if
 * there is none, or one exclusive holder.
 */
export async function membersOn(server: RedisServer, key: string): Promise<Member[]> {
  const value = (await server.command('GET', `lock:{${key}}`)) as string | null;
  return readHolderSet(value ?? '')?.members ?? [];
}

/** The clock of a server, in milliseconds. */
export async function timeOn(server: RedisServer): Promise<number> {
  const [seconds, us] = (await server.command('TIME')) as [string, string];
  return Number(seconds) * 1_000 + Math.floor(Number(us) / 1_000);
}

/** The fencing counter of a server, 0 if there is none yet. */
export async function counterOn(server: RedisServer): Promise<number> {
  return Number(await server.command('GET', COUNTER));
}
