import { Mutex, RedlockMutex, Semaphore } from 'redis-semaphore';
import { connectAll } from './clients.mjs';

export async function open({ ports, ttlMs, waitMs, settings = {} }) {
  const clients = await connectAll(ports, { options: settings.client });
  const limits = waitMs > 0 ? { acquireTimeout: waitMs } : {};
  const acquire = async (key, ttl = ttlMs) => {
    const options = { lockTimeout: ttl, ...limits, ...settings.lock };
    const mutex = clients.length > 1 ? new RedlockMutex(clients, key, options) : new Mutex(clients[0], key, options);
    await mutex.acquire();
    return mutex;
  };
  return {
    acquire: (key) => acquire(key),
    async acquirePermits(key, limit) {
      const semaphore = new Semaphore(clients[0], key, limit, { lockTimeout: ttlMs, ...limits });
      await semaphore.acquire();
      return semaphore;
    },
    release: (mutex) => mutex.release(),
    hold: (key, ttl) => acquire(key, ttl),
    async turn(key, work) {
      const mutex = await acquire(key);
      await work({ held: () => mutex.isAcquired });
      return mutex.release();
    },
    close: () => clients.forEach((client) => client.disconnect()),
  };
}
