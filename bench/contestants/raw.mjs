import { randomUUID } from 'node:crypto';
import { connect } from './clients.mjs';
import { COMPARE_AND_DELETE } from './compare-and-delete.mjs';

const COMPARE_AND_EXPIRE = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('PEXPIRE', KEYS[1], ARGV[2]) end return 0`;

/** The baseline: SET NX PX and a compare-and-delete script. It does not wait. */
export async function open({ ports: [port], ttlMs }) {
  const client = await connect(port);
  const deleteSha = await client.script('LOAD', COMPARE_AND_DELETE);
  const expireSha = await client.script('LOAD', COMPARE_AND_EXPIRE);

  async function acquire(key, ttl = ttlMs) {
    const lock = { key, owner: randomUUID() };
    if ((await client.set(key, lock.owner, 'PX', ttl, 'NX')) !== 'OK') throw new Error(`${key} is taken`);
    return lock;
  }
  const release = ({ key, owner }) => client.evalsha(deleteSha, 1, key, owner);

  return {
    acquire,
    release,
    /** Renewed one by one: a timer and a command for each lock, after a third of the ttl like the library. */
    async hold(key, ttl) {
      const lock = await acquire(key, ttl);
      const timer = setInterval(() => {
        client.evalsha(expireSha, 1, key, lock.owner, ttl).catch(() => {});
      }, ttl / 3);
      return {
        release: () => {
          clearInterval(timer);
          return release(lock);
        },
      };
    },
    close: () => client.disconnect(),
  };
}
