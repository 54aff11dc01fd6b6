import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { openSqlLocks } from '../support/open-locks.js';
import { PostgresServer } from '../support/postgres-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { connectTo } from './hazards/stage.js';

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

const WAITING = `SELECT 1 FROM resource_lock WHERE resource_lock_key = $1 AND waiters <> '{}'`;

async function wayTo({ port }: PostgresServer): Promise<{ proxy: TcpProxy; postgres: string }> {
  const proxy = await TcpProxy.start(port);
  onTestFinished(() => proxy.stop());
  return { proxy, postgres: `postgres://postgres@127.0.0.1:${proxy.port}/postgres` };
}

/** Has each commit wait for a standby that does not exist, or not any more. */
async function hangCommits(hang: boolean): Promise<void> {
  await server.query(`ALTER SYSTEM SET synchronous_standby_names = '${hang ? 'away' : ''}'`);
  await server.query('SELECT pg_reload_conf()');
  // Processes of the server read its configuration one after the other: a commit tells when it counts.
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

describe('The sessions of locks in PostgreSQL', () => {
  it('leave no lock behind when a statement reaches the server after its attempt was undone [G975]', async () => {
    const { proxy, postgres } = await wayTo(server);
    const locks = await openSqlLocks({ postgres, commandTimeoutMs: 500 });
    const other = await openSqlLocks({ postgres: server.url });
    await locks.withLock('late', () => {});
    proxy.holdPresent();
    await expect(locks.acquire('late', { ttlMs: 600_000, waitMs: 0 })).rejects.toMatchObject({
      code: 'LOCK_UNAVAILABLE',
    });
    // It uses another connection by now, on which it has undone the attempt first.
    await until(() => locks.withLock('next', () => true).catch(() => false), { what: 'locks can be taken again' });
    proxy.release();
    await until(async () => (await sessions()) === 2, { what: 'the session of the late statement has ended' });
    const lock = await other.tryAcquire('late');
    expect(lock?.isHeld).toBe(true);
    await lock!.release();
  });

  it('are no more than documented while commits hang, however often a statement is given up [G976]', async () => {
    const locks = await openSqlLocks({ postgres: server.url, commandTimeoutMs: 200 });
    await hangCommits(true);
    const counts: number[] = [];
    for (let attempt = 0; attempt < 6; attempt++) {
      const ended = await locks.acquire(`key ${attempt}`, { waitMs: 400 }).catch((error: unknown) => error);
      expect(ended).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      counts.push(await sessions());
    }
    expect(Math.max(...counts)).toBeLessThanOrEqual(2);
    await hangCommits(false);
    await until(() => locks.withLock('key 0', () => true).catch(() => false), { what: 'locks can be taken' });
  });

  it('are no more either where their user may not end them, and locks are unavailable until the last one has ended', async () => {
    await server.query('CREATE ROLE owner; GRANT ALL ON SCHEMA public TO owner');
    await server.query('CREATE ROLE app LOGIN IN ROLE owner; ALTER ROLE app SET role = owner');
    const postgres = server.url.replace('postgres@', 'app@');
    const locks = await openSqlLocks({ postgres, commandTimeoutMs: 200 });
    await hangCommits(true);
    const counts: number[] = [];
    const refusals = new Set<string>();
    await until(
      async () => {
        refusals.add(String(await locks.acquire('key', { waitMs: 400 }).catch((error: unknown) => error)));
        counts.push(await sessions());
        return [...refusals].some((text) => text.includes('the session of its last connection does not end'));
      },
      { what: 'the reason is given' },
    );
    expect(Math.max(...counts)).toBeLessThanOrEqual(2);
    await hangCommits(false);
    await until(() => locks.withLock('key', () => true).catch(() => false), { what: 'locks can be taken' });
  });

  it('that listen are ended when others take their place, though the server has not learned that they were closed [G977]', async () => {
    const { proxy, postgres } = await wayTo(server);
    const locks = await openSqlLocks({ postgres, commandTimeoutMs: 20_000 });
    const other = await openSqlLocks({ postgres: server.url, commandTimeoutMs: 20_000 });
    /** Waits for a lock that the other process has for a moment. */
    const takeOver = async (key: string) => {
      const lock = await other.acquire(key, { ttlMs: 600_000 });
      const waiting = locks.withLock(key, { waitMs: 600_000 }, () => {});
      await until(async () => (await server.query(WAITING, [key])).length === 1, { what: 'it waits' });
      await lock.release();
      await waiting;
    };
    const listening = () => sessions('LISTEN');
    await takeOver('first');
    await until(() => proxy.heard.includes('\0?\0'), { what: 'it has heard its own message' });
    expect(await listening()).toBe(1);
    proxy.muteSubscriptions();
    proxy.holdPresent('subscriptions');
    // It finds out by a turn that it was not told of.
    const made = proxy.made;
    await until(async () => (await takeOver('next'), proxy.made > made), { what: 'it listens by another connection' });
    await until(async () => (await listening()) === 1 && proxy.present === 2, { what: 'the session before has ended' });
  });
});
