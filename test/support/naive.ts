import type { Redis } from 'ioredis';

/**
 * The usual lock on one Redis: one command, a value for each holder, a ttl. Nothing extends it, and nothing reports its
 * loss.
 */
export async function tryLock(redis: Redis, key: string, value: string, ttlMs: number): Promise<boolean> {
  return (await redis.set(key, value, 'PX', ttlMs, 'NX')) === 'OK';
}

const COMPARE_AND_DELETE = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`;

export async function unlock(redis: Redis, key: string, value: string): Promise<boolean> {
  return (await redis.eval(COMPARE_AND_DELETE, 1, key, value)) === 1;
}

/** Redlock in three lines: it asks all nodes at once, and a majority decides when all have answered. */
export async function tryMajority(
  nodes: readonly Redis[],
  key: string,
  value: string,
  ttlMs: number,
): Promise<boolean> {
  const votes = await Promise.all(nodes.map((node) => tryLock(node, key, value, ttlMs).catch(() => false)));
  return votes.filter(Boolean).length > nodes.length / 2;
}
