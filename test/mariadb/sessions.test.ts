import { describe, expect, it, onTestFinished } from 'vitest';
import type { MariaDbServer } from '../support/mariadb-server.js';
import { openSqlLocks } from '../support/open-locks.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { ownMariaDb } from './server.js';

/** How many sessions of clients the server has. */
async function sessions(server: MariaDbServer): Promise<number> {
  const text = "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()";
  return (await server.query(text)).length;
}

describe('The sessions of locks in MariaDB', () => {
  it('leave no lock behind when a statement reaches the server after its attempt was undone [G978]', async () => {
    const server = await ownMariaDb();
    const proxy = await TcpProxy.start(server.port);
    onTestFinished(() => proxy.stop());
    const mysql = `mysql://root@127.0.0.1:${proxy.port}/shop`;
    const locks = await openSqlLocks({ mysql, commandTimeoutMs: 500 });
    const other = await openSqlLocks({ mysql: server.url });
    await locks.withLock('late', () => {});
    proxy.holdPresent();
    const refused = locks.acquire('late', { ttlMs: 600_000, waitMs: 0 });
    await expect(refused).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    // It uses another connection by now, on which it has undone the attempt first.
    await until(() => locks.withLock('next', () => true).catch(() => false), { what: 'locks can be taken again' });
    proxy.release();
    await until(async () => (await sessions(server)) === 2, { what: 'the session of the late statement has ended' });
    const lock = await other.tryAcquire('late');
    expect(lock?.isHeld).toBe(true);
    await lock!.release();
  });

  it('are no more than documented while commits hang, however often a statement is given up [G979]', async () => {
    const server = await ownMariaDb({ 'log-bin': 'log', 'binlog-format': 'ROW' });
    const locks = await openSqlLocks({ mysql: server.url, commandTimeoutMs: 200 });
    // Each commit waits for a replica, and there is none.
    await server.query('SET GLOBAL rpl_semi_sync_master_timeout = 3600000');
    await server.query('SET GLOBAL rpl_semi_sync_master_enabled = 1');
    const counts: number[] = [];
    for (let attempt = 0; attempt < 6; attempt++) {
      const ended = await locks.acquire(`key ${attempt}`, { waitMs: 400 }).catch((error: unknown) => error);
      expect(ended).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      counts.push(await sessions(server));
    }
    expect(Math.max(...counts)).toBeLessThanOrEqual(2);
    await server.query('SET GLOBAL rpl_semi_sync_master_enabled = 0');
    await until(() => locks.withLock('key 0', () => true).catch(() => false), { what: 'locks can be taken' });
  });
});
