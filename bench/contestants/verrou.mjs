import { Verrou } from '@verrou/core';
import { redisStore } from '@verrou/core/drivers/redis';
import { connect } from './clients.mjs';

export async function open({ ports: [port], ttlMs }) {
  const connection = await connect(port);
  const verrou = new Verrou({ default: 'redis', stores: { redis: { driver: redisStore({ connection }) } } });
  const acquire = async (key) => {
    const lock = verrou.createLock(key, ttlMs);
    if (!(await lock.acquire())) throw new Error(`${key} was not acquired`);
    return lock;
  };
  return {
    acquire,
    async turn(key, work) {
      const lock = await acquire(key);
      await work({ held: () => !lock.isExpired() });
      return lock.release();
    },
    release: (lock) => lock.release(),
    close: () => connection.disconnect(),
  };
}
