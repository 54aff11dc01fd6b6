import { createLock, createRedlock, IoredisAdapter } from 'redlock-universal';
import { connectAll, ENOUGH_ATTEMPTS } from './clients.mjs';
import { holdByUsing } from './hold-by-using.mjs';

export async function open({ ports, ttlMs, waitMs }) {
  const clients = await connectAll(ports);
  const adapters = clients.map((client) => new IoredisAdapter(client));
  const limits = waitMs > 0 ? { retryAttempts: ENOUGH_ATTEMPTS } : {};
  const lockOf = (key, ttl) =>
    adapters.length > 1
      ? createRedlock({ adapters, key, ttl, ...limits })
      : createLock({ adapter: adapters[0], key, ttl, ...limits });
  return {
    async acquire(key) {
      const lock = lockOf(key, ttlMs);
      return { lock, handle: await lock.acquire() };
    },
    release: ({ lock, handle }) => lock.release(handle),
    hold: (key, ttl) => holdByUsing((work) => lockOf(key, ttl).using(work)),
    close: () => clients.forEach((client) => client.disconnect()),
  };
}
