import { expect, it } from 'vitest';
import { openSqlLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { ownMariaDb, PATIENT } from './server.js';

it('A server that was demoted grants and extends no lock, also where the user of the locks may still write there [G980]', async () => {
  const server = await ownMariaDb();
  const locks = await openSqlLocks({ mysql: server.url, ...PATIENT }); // as root
  await locks.withLock('used', () => {});
  const held = await locks.acquire('held', { ttlMs: 600_000 });
  await server.query('SET GLOBAL read_only = 1');
  await server.query("UPDATE resource_lock SET calls_behind = 0 WHERE resource_lock_key = 'used'"); // it may write
  await expect(held.extend(600_000)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  for (const key of ['used', 'new']) {
    const refusal: unknown = await locks.acquire(key, { waitMs: 0 }).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(String(refusal)).toContain('leads to the primary');
  }
  await server.query('SET GLOBAL read_only = 0');
  for (const key of ['used', 'new'])
    await until(() => locks.withLock(key, () => true).catch(() => false), { what: 'the lock is granted' });
  expect(await held.release()).toBe(true);
});

it.each(['used', 'new'])(
  'A server that was just demoted grants no lock with its next change: a key that is %s',
  async (key) => {
    const server = await ownMariaDb();
    const locks = await openSqlLocks({ mysql: server.url, ...PATIENT });
    await locks.withLock('used', () => {});
    await server.query('SET GLOBAL read_only = 1');
    const refusal: unknown = await locks.acquire(key, { waitMs: 0 }).catch((error: unknown) => error);
    expect(refusal).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    const rows = await server.query('SELECT 1 FROM resource_lock WHERE resource_lock_key = ?', ['new']);
    expect(rows).toEqual([]);
  },
);
