import { connect } from './clients.mjs';
import { LocalQueue } from './local-queue.mjs';

/**
 * One list element for each lock: BLPOP takes it, RPUSH puts it back. Each process has a local FIFO, and one blocking
 * connection for each key. If a process dies, its element is lost.
 */
export async function open({ ports: [port] }) {
  const client = await connect(port);
  const queue = new LocalQueue();
  const blocking = new Map();
  const blockingFor = (key) => {
    if (!blocking.has(key)) blocking.set(key, connect(port));
    return blocking.get(key);
  };
  return {
    prepare: (keys) => Promise.all(keys.map((key) => client.rpush(key, 'token'))),
    async acquire(key) {
      await queue.enter(key);
      await (await blockingFor(key)).blpop(key, 0);
      return { key };
    },
    async release({ key }) {
      await client.rpush(key, 'token');
      queue.leave(key);
    },
    async close() {
      client.disconnect();
      for (const connection of blocking.values()) (await connection).disconnect();
    },
  };
}
