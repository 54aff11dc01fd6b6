import { beforeEach, describe, expect, it } from 'vitest';
import { openSqlLocks } from '../support/open-locks.js';
import { PostgresServer } from '../support/postgres-server.js';
import { proxyTo } from '../support/stage.js';
import { until } from '../support/until.js';
import { commitsHang, statementComesLate, type SessionServer } from './sessions.js';
import { connectTo, locksOn, queued, urlBy } from './stage.js';

let server: PostgresServer;
beforeEach(async () => {
  server = await PostgresServer.start();
  return () => server.stop();
});

/** How many sessions of locks the server has. @param last a part of their last statement */
async function sessions(last = ''): Promise<number> {
  const text = `SELECT 1 FROM pg_stat_activity WHERE application_name = 'nest-redis-lock' AND position($1 in query) > 0`;
  return (await server.query(text, [last])).length;
}

/** Makes each commit wait for a standby that does not exist, or stops that. */
async function hangCommits(hang: boolean): Promise<void> {
  await server.query(`ALTER SYSTEM SET synchronous_standby_names = '${hang ? 'away' : ''}'`);
  await server.query('SELECT pg_reload_conf()');
  // Processes of the server read its configuration one after the other: a commit shows when it applies.
  await until(async () => (await commitHangs()) === hang, { what: 'the configuration counts' });
}

async function commitHangs(): Promise<boolean> {
  const client = await connectTo(server);
  let hasEnded = false;
  const end = () => (hasEnded = true);
  void client.query(`SELECT pg_logical_emit_message(true, 'probe', '')`).then(end, end);
  await until(async () => hasEnded || (await server.query(HANGING)).length > 0, { what: 'a commit ends, or hangs' });
  return !hasEnded;
}
const HANGING = `SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep' AND query LIKE '%probe%'`;

const ofServer = (): SessionServer => ({
  port: server.port,
  locks: (options, port = server.port) => openSqlLocks({ postgres: urlBy({ port }), ...options }),
  sessions: () => sessions(),
  hangCommits,
});

describe('The sessions of locks in PostgreSQL', () => {
  it('leave no lock behind when a statement reaches the server after its attempt was undone [G975]', async () => {
    await statementComesLate(ofServer());
  });

  it('are no more than documented while commits hang, however often a statement is given up [G976]', async () => {
    await commitsHang(ofServer(), '', await openSqlLocks({ postgres: server.url, commandTimeoutMs: 200 }));
  });

  it('are no more even if their user may not end them, and locks are unavailable until the last one has ended', async () => {
    await server.query('CREATE ROLE owner; GRANT ALL ON SCHEMA public TO owner');
    await server.query('CREATE ROLE app LOGIN IN ROLE owner; ALTER ROLE app SET role = owner');
    const postgres = server.url.replace('postgres@', 'app@');
    const locks = await openSqlLocks({ postgres, commandTimeoutMs: 200 });
    await commitsHang(ofServer(), 'the session of its last connection does not end', locks);
  });

  it('that listen are ended when others take their place, though the server has not learned that they were closed [G977]', async () => {
    const proxy = await proxyTo(server);
    const [locks, other] = [await locksOn({ url: urlBy(proxy) }), await locksOn(server)];
    /** Waits for a lock that the other process holds for a moment. */
    const takeOver = async (key: string) => {
      const lock = await other.acquire(key, { ttlMs: 600_000 });
      const waiting = locks.withLock(key, { waitMs: 600_000 }, () => {});
      await queued(server, key);
      await lock.release();
      await waiting;
    };
    await takeOver('first');
    await until(() => proxy.heard.includes('\0?\0'), { what: 'it has heard its own message' });
    expect(await sessions('LISTEN')).toBe(1);
    proxy.muteSubscriptions();
    proxy.holdPresent('subscriptions');
    // It learns by a turn that it was not notified.
    const made = proxy.made;
    await until(async () => (await takeOver('next'), proxy.made > made), { what: 'it listens by another connection' });
    await until(async () => (await sessions('LISTEN')) === 1 && proxy.present === 2, {
      what: 'the session before has ended',
    });
  });
});
