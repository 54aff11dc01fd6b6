import { setTimeout as sleep } from 'node:timers/promises';
import { connectAll } from './clients.mjs';

/** What one finds in blogs: `SET NX` with one value for all, and `DEL`. It takes locks away from others: a control that must fail. */
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
