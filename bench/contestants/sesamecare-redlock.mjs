import { Redlock } from '@sesamecare-oss/redlock';
import { connectAll, ENOUGH_ATTEMPTS } from './clients.mjs';
import { holdByUsing } from './hold-by-using.mjs';

export async function open({ ports, ttlMs, waitMs, isCluster, settings = {} }) {
  const clients = await connectAll(ports, { isCluster, options: settings.client });
  const redlock = new Redlock(clients, waitMs > 0 ? { retryCount: ENOUGH_ATTEMPTS } : {});
  return {
    acquire: (key) => redlock.acquire([key], ttlMs),
    release: (lock) => lock.release(),
    hold: (key, ttl) => holdByUsing((work) => redlock.using([key], ttl, work)),
    turn: (key, work) =>
      redlock.using([key], ttlMs, settings.acquire ?? {}, (signal) => work({ held: () => !signal.aborted })),
    close: () => clients.forEach((client) => client.disconnect()),
  };
}
