import { afterAll, beforeAll, describe, it, onTestFinished } from 'vitest';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedlockNodes } from '../support/redlock-nodes.js';
import { expectSound } from './random-sets.js';

/** A lock that nobody gives back stays for longer than any test. */
const TTL_MS = 60_000;

const open = (options: RedisLockModuleOptions) => openLocks({ ttlMs: TTL_MS, ...options });

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
