import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { expectSound } from './random-sets.js';

/** A lock that nobody gives back stays for longer than any test. */
const TTL_MS = 60_000;

const open = (options: RedisLockModuleOptions) => openLocks({ ttlMs: TTL_MS, ...options });

describe('on one Redis, fair', () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await RedisServer.start();
  });
  afterAll(() => server.stop());
  const openFair = () => open({ redis: server.url, fair: true });

  it('with fair: true sets and single locks that wait for one key are served in the order in which they came', async () => {
    const services = [await openFair(), await openFair()];
    const holder = await services[0]!.acquire('order');
    const served: number[] = [];
    const calls: Promise<unknown>[] = [];
    for (let index = 0; index < 9; index++) {
      const keys = index % 3 === 2 ? 'order' : ['order', 'order:2'];
      calls.push(services[index % 2]!.withLock(keys as string[], () => served.push(index)));
      await new Promise((resolve) => setTimeout(resolve, 5)); // longer than the slack
    }
    await holder.release();
    await Promise.all(calls);
    expect(served).toEqual([0, 1, 2, 3, 4, 5, 6, 7, 8]);
  });
});

describe('on a Redlock', () => {
  let nodes: RedlockNodes;
  beforeAll(async () => {
    nodes = await RedlockNodes.start(3);
  });
  afterAll(() => nodes.stop());

  it('random sets of a Redlock exclude each other by key and all end, although a node is down [G396]', async () => {
    const openRedlock = () => open({ redlock: nodes.urls, commandTimeoutMs: 1_000 });
    const services = [await openRedlock(), await openRedlock()];
    await nodes.kill(2);
    onTestFinished(() => nodes.restart()); // closing would wait for it
    await expectSound(services, [...'abc'], 4);
  });
});
