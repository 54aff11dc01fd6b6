import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { counterOn } from '../support/stored.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

describe('extend', () => {
  it('an extension counts from when it was sent: the time that the reply took is gone from the lease [G5]', async () => {
    const proxy = await TcpProxy.start(server.port);
    const locks = await openLocks({ redis: proxy.url, commandTimeoutMs: 5_000 });
    const lock = await locks.acquire('slow');
    proxy.hold();
    const extending = lock.extend(20_000);
    await new Promise((resolve) => setTimeout(resolve, 300));
    proxy.release();
    await extending;
    expect(lock.remainingMs).toBeLessThanOrEqual(20_000 - 202 - 300 + 5);
    expect(lock.remainingMs).toBeGreaterThan(10_000);
    await lock.release();
    await proxy.stop();
  });

  it('an extension mints no new fencing token [G26]', async () => {
    const locks = await openLocks({ redis: server.url });
    const lock = await locks.acquire('token');
    await lock.extend();
    expect(await counterOn(server)).toBe(lock.fencingToken);
  });
});
