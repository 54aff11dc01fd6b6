import { expect, it } from 'vitest';
import { aclUser, refusals } from '../doctor/acl-user.js';
import { openLocks } from '../support/open-locks.js';
import { redisServer } from '../support/stage.js';

it('only list() needs the right +scan: its error names the right, and the doctor works without it [G430]', async () => {
  const redis = await redisServer();
  const locks = await openLocks({ redis: await aclUser(redis), ttlMs: 60_000, commandTimeoutMs: 20_000 });
  const lock = await locks.acquire('key');
  await refusals(redis);
  expect(await locks.inspect('key')).toMatchObject({ holder: { owner: lock.owner }, waitingProcesses: [] });
  await locks.diagnose();
  expect((await refusals(redis)).filter((what) => what !== 'config|get')).toEqual([]); // the doctor does not need it
  await expect(locks.list()).rejects.toMatchObject({
    code: 'LOCK_UNAVAILABLE',
    causes: [{ node: `127.0.0.1:${redis.port}` }],
    message: expect.stringContaining('Give its user the right +scan (ACL SETUSER)'),
  });

  await aclUser(redis, { also: ['+scan'] });
  expect(await locks.list()).toMatchObject({ locks: [{ key: 'key' }], complete: true });
});
