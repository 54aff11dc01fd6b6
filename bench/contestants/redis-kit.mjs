import { Redlock } from '@redis-kit/lock';
import { createClient } from 'redis';
import { ENOUGH_ATTEMPTS } from './clients.mjs';

export async function open({ ports, ttlMs, waitMs, settings = {} }) {
  const clients = await Promise.all(
    ports.map((port) =>
      createClient({ url: `redis://127.0.0.1:${port}` })
        .on('error', () => {})
        .connect(),
    ),
  );
  const redlock = new Redlock(clients, waitMs > 0 ? { maxRetryAttempts: ENOUGH_ATTEMPTS } : (settings.redlock ?? {}));
  const acquire = async (key, ttl = ttlMs) => {
    const lock = await redlock.acquire(key, ttl);
    if (!lock) throw new Error(`${key} was not acquired`);
    return lock;
  };
  const hold = async (key, ttl) => {
    const lock = await acquire(key, ttl);
    lock.startAutoExtension();
    return lock;
  };
  return {
    acquire: (key) => acquire(key),
    release: (lock) => lock.release(),
    hold,
    async turn(key, work) {
      const lock = await hold(key);
      await work({ held: () => lock.isValid });
      return lock.release();
    },
    close: () => clients.forEach((client) => client.destroy()),
  };
}
