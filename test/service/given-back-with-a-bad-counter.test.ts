import { afterAll, beforeAll, expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const refusal = (locks: LockService, key: string) => locks.acquire(key).then(() => 'granted', String);

it.each([
  ['nobody else waits', false],
  ['another process waits', true],
])(
  'A lock that is given back and asked for in one step is not called lost where no token can be minted for the next call: %s [G646]',
  async (key, othersWait) => {
    const open = () => openLocks({ redis: server.url, cohortPasses: 0 });
    const [locks, others] = [await open(), await open()];
    const holder = await locks.acquire(key);
    const refusals: Promise<string>[] = [];
    if (othersWait) {
      refusals.push(refusal(others, key));
      await untilQueued(server, key, 1);
    }
    refusals.push(refusal(locks, key));
    await server.command('SET', 'lock:fence', '9e15');
    expect(await holder.release()).toBe(true);
    for (const reason of await Promise.all(refusals)) expect(reason).toContain('is out of range');
    expect(await server.keys(`lock:{${key}}*`)).toEqual([]);
    await server.command('DEL', 'lock:fence');
  },
);
