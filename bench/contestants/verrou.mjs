import { Verrou } from '@verrou/core';
import { redisStore } from '@verrou/core/drivers/redis';
import { connect } from './clients.mjs';

export async function open({ ports: [port], ttlMs }) {
  const connection = await connect(port);
  const verrou = new Verrou({ default: 'redis', stores: { redis: { driver: redisStore({ connection }) } } });
  return {
    async acquire(key) {
      const lock = verrou.createLock(key, ttlMs);
      if (!(await lock.acquire())) throw new Error(`${key} was not acquired`);
      return lock;
    },
    release: (lock) => lock.release(),
    close: () => connection.disconnect(),
  };
}
