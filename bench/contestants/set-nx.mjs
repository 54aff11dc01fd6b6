import { setTimeout as sleep } from 'node:timers/promises';
import { connectAll } from './clients.mjs';

/**
 * The lock of many blog posts: `SET NX` with one value for everybody, and `DEL`. It deletes the locks of others: a
 * control that must fail.
 */
export async function open({ ports, ttlMs, isCluster }) {
  const [client] = await connectAll(ports, { isCluster });
  return {
    async turn(key, work) {
      while ((await client.set(key, '1', 'PX', ttlMs, 'NX')) !== 'OK') await sleep(50);
      await work({ held: () => true });
      await client.del(key);
    },
    close: () => client.disconnect(),
  };
}
