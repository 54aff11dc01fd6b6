import Redlock from 'redlock-4';
import { connectAll, ENOUGH_ATTEMPTS } from './clients.mjs';

export async function open({ ports, ttlMs, waitMs }) {
  const clients = await connectAll(ports);
  const redlock = new Redlock(clients, waitMs > 0 ? { retryCount: ENOUGH_ATTEMPTS } : {});
  redlock.on('clientError', () => {});
  return {
    acquire: (key) => redlock.lock(key, ttlMs),
    release: (lock) => lock.unlock(),
    close: () => clients.forEach((client) => client.disconnect()),
  };
}
