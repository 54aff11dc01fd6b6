import { randomUUID } from 'node:crypto';
import { createRequire } from 'node:module';
import { COMPARE_AND_DELETE } from './compare-and-delete.mjs';

/** The version that the library is developed with, not the version of the peers. */
const { createClient } = createRequire(new URL('../../package.json', import.meta.url))('redis');

/** The same as `raw`, with a client of node-redis and its own defaults. */
export async function open({ ports: [port], ttlMs }) {
  const client = createClient({ url: `redis://127.0.0.1:${port}` });
  client.on('error', () => {}); // each command reports its own failure
  await client.connect();
  const deleteSha = await client.scriptLoad(COMPARE_AND_DELETE);
  return {
    async acquire(key) {
      const lock = { key, owner: randomUUID() };
      const answer = await client.set(key, lock.owner, {
        expiration: { type: 'PX', value: ttlMs },
        condition: 'NX',
      });
      if (answer !== 'OK') throw new Error(`${key} is taken`);
      return lock;
    },
    release: ({ key, owner }) => client.evalSha(deleteSha, { keys: [key], arguments: [owner] }),
    close: () => client.destroy(),
  };
}
