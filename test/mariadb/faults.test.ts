import { describe, expect, it } from 'vitest';
import { ddl } from 'nest-redis-lock/sql';
import { openMysql } from '../../lib/stores/sql/mysql/mysql-source.js';
import { acquireOn, claimOn, extendOn, freshKey, granted, holderOn, releaseOn } from '../support/claims.js';
import { commitsHang, statementComesLate, type SessionServer } from '../sql/sessions.js';
import type { MariaDbServer } from '../support/mariadb-server.js';
import { openSqlLocks } from '../support/open-locks.js';
import { proxyTo } from '../support/stage.js';
import { until } from '../support/until.js';
import { kindOfServer, locksOn, mariaDb, openBackend, ownMariaDb, PATIENT, sessionOn, urlBy } from './server.js';

const server = await mariaDb();

/** The sessions of locks: each backend has one. */
async function killSessions(): Promise<void> {
  const sessions = await server.query(
    "SELECT id FROM information_schema.processlist WHERE db = 'shop' AND id <> CONNECTION_ID()",
  );
  for (const { id } of sessions) await server.query(`KILL ${Number(id)}`).catch(() => {});
}

describe('Locks in MariaDB', () => {
  it('can be acquired whatever settings the sessions of the server begin with [G789]', async () => {
    const own = await ownMariaDb({
      autocommit: '0',
      'completion-type': 'CHAIN',
      'default-time-zone': '+05:00',
      'group-concat-max-len': '4',
      'sql-mode': 'ANSI,NO_BACKSLASH_ESCAPES',
      'transaction-isolation': 'SERIALIZABLE',
    });
    await own.query('SET GLOBAL sql_safe_updates = 1');
    await own.query('SET GLOBAL sql_select_limit = 1');
    const [one, other] = [await locksOn(own), await locksOn(own)];
    const keys = Array.from({ length: 12 }, (_, at) => `key ${at}`);
    for (let turn = 0; turn < 2; turn++) {
      const locks = await one.acquireAll(keys, { waitMs: 60_000 });
      expect(await Promise.all(keys.map((key) => other.tryAcquire(key)))).toEqual(keys.map(() => null));
      await Promise.all(keys.map((key) => locks.get(key).extend(60_000)));
      expect((await other.list()).locks.map(({ key }) => key).sort()).toEqual([...keys].sort());
      const waiting = other.acquire(keys[0]!, { waitMs: 60_000 });
      expect(await locks.release()).toBe(true);
      expect(await (await waiting).release()).toBe(true);
    }
  });

  it('can be acquired again after all sessions were killed, and are still held by their holders [G781]', async () => {
    const backend = await openBackend(server.url);
    const claim = claimOn(freshKey());
    await granted(backend, claim);
    await killSessions();
    await until(async () => (await extendOn(backend, claim)).status === 'extended', { what: 'it is extended' });
    const other = claimOn(freshKey());
    expect(await acquireOn(backend, other)).toMatchObject({ status: 'acquired' });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    expect(await releaseOn(backend, other)).toEqual({ status: 'released' });
  });

  it('are refused at once while another session holds the row, and hold up no others [G782]', async () => {
    const backend = await openBackend(server.url);
    const [free, other] = [claimOn(freshKey()), claimOn(freshKey())];
    await granted(backend, free);
    await releaseOn(backend, free);
    const session = await sessionOn(server, free.key);
    const again = claimOn(free.key);
    const [refused, taken] = await Promise.all([acquireOn(backend, again), acquireOn(backend, other)]);
    expect(refused).toMatchObject({ status: 'contended', remainingMs: expect.any(Number) });
    expect(taken).toMatchObject({ status: 'acquired' });
    await session.commit();
    await until(async () => (await acquireOn(backend, again)).status === 'acquired', { what: 'the lock is acquired' });
    await releaseOn(backend, again);
    await releaseOn(backend, other);
  });

  it('are granted although another lock of the same request is refused, whose error says what to do [G971]', async () => {
    const own = await ownMariaDb();
    const locks = await locksOn(own, { waitMs: 60_000 });
    await (await locks.acquire('large')).release();
    await own.query("ALTER TABLE resource_lock ADD CHECK (resource_lock_key <> 'forbidden')");
    await own.query("UPDATE resource_lock SET fence = 9007199254740991 WHERE resource_lock_key = 'large'");
    const keys = ['a', 'b', 'forbidden', 'c', 'large', 'd'];
    const [, ...outcomes] = await Promise.allSettled([
      locks.inspect('any'), // in flight, so that they travel together
      ...keys.map((key) => locks.acquire(key)),
    ]);
    const refused = ['forbidden', 'large'];
    expect(keys.filter((_, at) => outcomes[at]!.status === 'rejected')).toEqual(refused);
    for (const key of refused) {
      const reason: unknown = await locks.acquire(key).catch((error: unknown) => error);
      expect(reason).toMatchObject({ key, causes: [{ isOfKey: true }] });
      expect(String(reason)).toContain('Other keys are not affected.');
    }
  });

  it('leave nothing behind of an attempt whose reply never came [G783]', async () => {
    const proxy = await proxyTo(server);
    const backend = await openBackend(urlBy(proxy), 1_000);
    const direct = await openBackend(server.url);
    const held = claimOn(freshKey(), 600_000);
    await granted(backend, held);
    proxy.dropReplies();
    const claim = claimOn(freshKey(), 600_000);
    expect(await acquireOn(backend, claim)).toMatchObject({ status: 'unavailable' });
    expect(await extendOn(backend, held)).toMatchObject({ status: 'unavailable' });
    proxy.passReplies();
    await until(async () => (await holderOn(direct, claim.key)) === undefined, { what: 'the attempt is undone' });
    await until(async () => (await extendOn(backend, held)).status === 'extended', { what: 'it can be extended' });
    expect(await releaseOn(backend, held)).toEqual({ status: 'released' });
  });

  it('can be acquired once a server answers that hung while sessions were set up, and no socket of those sessions is left', async () => {
    const proxy = await proxyTo(server);
    proxy.mutesAfter = /SHOW VARIABLES/;
    const starting = openSqlLocks({ mysql: urlBy(proxy), commandTimeoutMs: 1_000, connectTimeoutMs: 60_000 });
    await until(() => proxy.made >= 3 && proxy.present <= 1, {
      what: 'attempts were given up, and their sockets closed',
    });
    proxy.mutesAfter = undefined;
    const lock = await (await starting).acquire(freshKey());
    expect(await lock.release()).toBe(true);
  });

  it('cannot be acquired while the server does not answer, but once it does, and their tokens keep growing after a crash [G784]', async () => {
    const own = await ownMariaDb();
    const backend = await openBackend(own.url, 1_000);
    const claim = claimOn(freshKey());
    const { fencingToken } = await granted(backend, claim);
    own.pause();
    expect(await acquireOn(backend, claimOn(freshKey()))).toMatchObject({ status: 'unavailable' });
    own.resume();
    await until(async () => (await extendOn(backend, claim)).status === 'extended', { what: 'it is extended' });
    expect(await releaseOn(backend, claim)).toEqual({ status: 'released' });
    await own.restart();
    const after = claimOn(claim.key);
    await until(async () => (await acquireOn(backend, after)).status === 'acquired', { what: 'the lock is acquired' });
    expect(after.grant!.fencingToken).toBeGreaterThan(fencingToken);
  });

  it('fail at once when the connection of their request is closed', async () => {
    const source = await openMysql(server.url, PATIENT.commandTimeoutMs);
    const client = await source.connect(() => {});
    const asking = client.query({ name: 'sleep', text: 'SELECT SLEEP(20)' }, []);
    client.close();
    await expect(asking).rejects.toThrow('the connection was closed');
  });

  it('are refused by a read-only server, with what to do [G785]', async () => {
    const own = await ownMariaDb();
    await own.query(ddl('mysql'));
    await own.query('CREATE USER app IDENTIFIED BY "secret"');
    await own.query('GRANT SELECT, INSERT, UPDATE, DELETE ON shop.* TO app');
    const url = `mysql://app:secret@127.0.0.1:${own.port}/shop`;
    const locks = await locksOn({ url });
    await (await locks.acquire('key')).release();
    await own.query('SET GLOBAL read_only = 1');
    const refusal: unknown = await locks.acquire('key').catch((error: unknown) => error);
    expect(refusal).toMatchObject({ name: 'LockUnavailableError' });
    expect(String(refusal)).toContain('check that the address leads to the primary');
    await expect(locksOn({ url }, { connectTimeoutMs: 2_000 })).rejects.toThrow('The server is read-only');
    await own.query('SET GLOBAL read_only = 0');
    const again = await until(() => locks.acquire('key').catch(() => undefined), { what: 'the lock is acquired' });
    expect(await again.release()).toBe(true);
  });

  it('are neither granted nor extended by a demoted server, even if the user of the locks may still write there [G980]', async () => {
    const own = await ownMariaDb();
    const locks = await locksOn(own); // as root
    await locks.withLock('used', () => {});
    const held = await locks.acquire('held', { ttlMs: 600_000 });
    await own.query('SET GLOBAL read_only = 1');
    await own.query("UPDATE resource_lock SET calls_behind = 0 WHERE resource_lock_key = 'used'"); // it may write
    await expect(held.extend(600_000)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    for (const key of ['used', 'new']) {
      const refusal: unknown = await locks.acquire(key, { waitMs: 0 }).catch((error: unknown) => error);
      expect(refusal).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      expect(String(refusal)).toContain('leads to the primary');
    }
    await own.query('SET GLOBAL read_only = 0');
    for (const key of ['used', 'new'])
      await until(() => locks.withLock(key, () => true).catch(() => false), { what: 'the lock is granted' });
    expect(await held.release()).toBe(true);
  });

  it('are not granted by the next change on a server that was just demoted, whether their keys were used before or not', async () => {
    const own = await ownMariaDb();
    const locks = await Promise.all([locksOn(own), locksOn(own)]);
    await locks[0]!.withLock('used', () => {});
    await own.query('SET GLOBAL read_only = 1');
    for (const [at, key] of ['used', 'new'].entries()) {
      const refusal: unknown = await locks[at]!.acquire(key, { waitMs: 0 }).catch((error: unknown) => error);
      expect(refusal).toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    }
    expect(await own.query("SELECT 1 FROM resource_lock WHERE resource_lock_key = 'new'")).toEqual([]);
  });
});

const sessionsOf = (own: MariaDbServer): SessionServer => ({
  port: own.port,
  locks: (options, port = own.port) => openSqlLocks({ mysql: urlBy({ port }), ...options }),
  sessions: async () => {
    const text = "SELECT id FROM information_schema.processlist WHERE user = 'root' AND id <> CONNECTION_ID()";
    return (await own.query(text)).length;
  },
  hangCommits: async (hang) => {
    const { semiSync } = await kindOfServer();
    await own.query(`SET GLOBAL ${semiSync}_timeout = 3600000`);
    await own.query(`SET GLOBAL ${semiSync}_enabled = ${Number(hang)}`);
  },
});

describe('The sessions of locks in MariaDB', () => {
  it('leave no lock behind when a statement reaches the server after its attempt was undone [G978]', async () => {
    await statementComesLate(sessionsOf(await ownMariaDb()));
  });

  it('are no more than documented while commits hang, however often a statement is given up [G979]', async () => {
    const { withSemiSync } = await kindOfServer();
    const own = await ownMariaDb({ 'log-bin': 'log', 'binlog-format': 'ROW', ...withSemiSync });
    const locks = await openSqlLocks({ mysql: own.url, commandTimeoutMs: 200 });
    await commitsHang(sessionsOf(own), '', locks);
  });
});
