import { Redis } from 'ioredis';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { ownerIn } from '../support/stored.js';
import { Primary } from './primary.js';

let primary: Primary;

beforeAll(async () => {
  primary = await Primary.start();
});
afterAll(() => primary.stop());

it('a wait for replicas that the user may not ask for is no answer: the lock is refused, and given back', async () => {
  await primary.server.command('ACL', 'SETUSER', 'tenant', 'on', 'nopass', '~*', '&*', '+@all', '-wait');
  const redis = `redis://tenant:any@127.0.0.1:${primary.server.port}`;
  const locks = await openLocks({ redis, commandTimeoutMs: 10_000, waitForReplicas: { count: 1, timeoutMs: 10_000 } });
  const key = freshKey();
  await expect(locks.acquire(key)).rejects.toThrow(/it is unknown whether replicas have it: NOPERM .*'wait'/);
  await primary.isFree(key);
});

it('a lock whose replicas are waited for is in the database that the application has selected', async () => {
  const redis = new Redis(primary.url);
  onTestFinished(() => redis.disconnect());
  await redis.select(3);
  const locks = await openLocks({ redis, commandTimeoutMs: 10_000, waitForReplicas: { count: 1, timeoutMs: 10_000 } });
  const { key, owner } = await locks.acquire(freshKey());
  expect(ownerIn(await redis.get(`lock:{${key}}`))).toBe(owner);
});
