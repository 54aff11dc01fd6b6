import { createLock, createRedlock, IoredisAdapter } from 'redlock-universal';
import { connectAll, ENOUGH_ATTEMPTS } from './clients.mjs';
import { holdByUsing } from './hold-by-using.mjs';

export async function open({ ports, ttlMs, waitMs, isCluster, settings = {} }) {
  const clients = await connectAll(ports, { isCluster, options: settings.client });
  const adapters = clients.map((client) => new IoredisAdapter(client));
  const limits = waitMs > 0 ? { retryAttempts: ENOUGH_ATTEMPTS } : settings.lock;
  const lockOf = (key, ttl) =>
    adapters.length > 1
      ? createRedlock({ adapters, key, ttl, ...limits })
      : createLock({ adapter: adapters[0], key, ttl, ...limits });
  const ofTurns = new Map(); // one lock object for each key, so that its circuit breaker works
  return {
    async acquire(key) {
      const lock = lockOf(key, ttlMs);
      return { lock, handle: await lock.acquire() };
    },
    release: ({ lock, handle }) => lock.release(handle),
    hold: (key, ttl) => holdByUsing((work) => lockOf(key, ttl).using(work)),
    turn(key, work) {
      if (!ofTurns.has(key)) ofTurns.set(key, lockOf(key, ttlMs));
      return ofTurns.get(key).using((signal) => work({ held: () => !signal.aborted }));
    },
    close: () => clients.forEach((client) => client.disconnect()),
  };
}
