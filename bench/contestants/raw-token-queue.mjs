import { connect } from './clients.mjs';

/** KEYS lock, queue; ARGV member, ttl. 1: acquired, 0: queued. */
const ENTER = `
if redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2], 'NX') then return 1 end
redis.call('RPUSH', KEYS[2], ARGV[1])
return 0`;

/** KEYS lock, queue; ARGV ttl. Hands the lock over to the first in the queue, by a message to its process. */
const LEAVE = `
local next = redis.call('LPOP', KEYS[2])
if not next then return redis.call('DEL', KEYS[1]) end
redis.call('SET', KEYS[1], next, 'PX', ARGV[1])
return redis.call('PUBLISH', string.match(next, '^%d+'), next)`;

/** KEYS lock; ARGV member, ttl. */
const CONFIRM = `
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])`;

/**
 * Every waiter is in a Redis list. A release hands the lock to the first one and notifies its process. Two commands a
 * turn, strictly first come, first served. It trusts every process to live: no owner check, no real lease, no check for
 * dead processes. With `grantMs`, a lock that is handed over has this ttl until its new holder has confirmed it.
 */
export async function open({ ports: [port], ttlMs, grantMs }) {
  const client = await connect(port);
  const subscriber = await connect(port);
  const enterSha = await client.script('LOAD', ENTER);
  const leaveSha = await client.script('LOAD', LEAVE);
  const confirmSha = await client.script('LOAD', CONFIRM);
  const waiting = new Map();
  let sequence = 0;
  await subscriber.subscribe(String(process.pid));
  subscriber.on('message', (_channel, member) => {
    waiting.get(member)();
    waiting.delete(member);
  });
  return {
    async acquire(key) {
      const member = `${process.pid}:${sequence++}`;
      const granted = new Promise((resolve) => waiting.set(member, resolve));
      if ((await client.evalsha(enterSha, 2, key, `${key}:queue`, member, ttlMs)) === 1) waiting.delete(member);
      else {
        await granted;
        if (grantMs && (await client.evalsha(confirmSha, 1, key, member, ttlMs)) !== 1)
          throw new Error('not confirmed');
      }
      return { key };
    },
    release: ({ key }) => client.evalsha(leaveSha, 2, key, `${key}:queue`, grantMs ?? ttlMs),
    close() {
      client.disconnect();
      subscriber.disconnect();
    },
  };
}
