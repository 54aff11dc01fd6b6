import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type { RedisLockSettings } from 'nest-redis-lock';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { hadAtItsEnd } from './had-at-its-end.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const open = (settings: RedisLockSettings = {}) => openLocks({ redis: server.url, ...settings });

/** A process holds the lock, others wait for it, and the process is killed. */
async function crashed(key: string, fair: boolean): Promise<void> {
  const holder = await LockProcess.start({ redis: server.url, ttlMs: 3_000 });
  const services = await Promise.all([open({ fair }), open({ fair }), open({ fair })]);
  await holder.acquire(key);
  const calls = services.map((locks) => locks.acquire(key, { waitMs: 20_000 }));
  await untilQueued(server, key, 3);
  await holder.kill();
  await hadAtItsEnd(server, key, Promise.race(calls));
  for (let left = [...calls]; left.length > 0;) {
    const [index, lock] = await Promise.race(left.map(async (call, at) => [at, await call] as const));
    await lock.release();
    left = left.filter((_, at) => at !== index);
  }
}

describe('a lock whose holder crashed is had right at the end of its ttl', () => {
  it('a lock whose holder crashed is had at the end of its ttl also among 300 000 other keys that end some time [G124]', async () => {
    const fill = `for index = ARGV[1], ARGV[2] do
      redis.call('SET', 'other:' .. index, '', 'PX', 20000 + index % 40000)
    end`;
    for (let start = 0; start < 300_000; start += 30_000) {
      await server.command('EVAL', fill, 0, start, start + 29_999);
    }
    expect(await server.command('DBSIZE')).toBeGreaterThan(250_000);
    await crashed('among others', false);
    await server.command('FLUSHALL');
  });
});
