import { afterAll, afterEach, beforeAll, describe, expect, it } from 'vitest';
import type { RedisLockSettings } from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { Primary } from './primary.js';

describe('The wait for replicas', () => {
  let primary: Primary;

  beforeAll(async () => {
    primary = await Primary.start();
  });
  afterEach(() => primary.letIn());
  afterAll(() => primary.stop());

  const open = (waitForReplicas: RedisLockSettings['waitForReplicas'], settings: RedisLockSettings = {}) =>
    openLocks({ redis: primary.url, commandTimeoutMs: 10_000, waitForReplicas, ...settings });

  it('an extension with waitForReplicas that the replica does not get is none [G77]', async () => {
    const locks = await open({ count: 1, timeoutMs: 1_000 }, { ttlMs: 60_000 });
    const lock = await until(() => locks.tryAcquire(freshKey()).catch(() => null), {
      what: 'it is acknowledged in time',
    });
    primary.cutOff();
    await expect(lock.extend()).rejects.toThrow('0 of 1 replicas had it within 1000 ms');
    await primary.letIn();
    const extended = () =>
      lock.extend().then(
        () => true,
        () => false,
      );
    await until(extended, { what: 'an extension is acknowledged in time' });
    expect(lock.isHeld).toBe(true);
  });
});
