import { createPool } from 'mysql2/promise';
import { ddl, type SqlLockModuleOptions } from 'nest-redis-lock/sql';
import { describe, expect, it, onTestFinished } from 'vitest';
import { describeHazards, type HazardDatabase, type Pool } from '../sql/hazards.js';
import { freshKey } from '../support/claims.js';
import { openSqlLocks } from '../support/open-locks.js';
import { randomOf } from '../support/random.js';
import { until } from '../support/until.js';
import {
  connectTo,
  locksOn,
  mariaDb,
  openAnother,
  ownMariaDb,
  PATIENT,
  rowOf,
  sessionOn,
  sweeper,
  urlBy,
} from './server.js';

const TTL_MS = 600_000;

const server = await mariaDb();
await server.query(ddl('mysql'));

function hazardDatabase(): HazardDatabase {
  const pool = (most: number): Pool => {
    const source = createPool({ uri: server.url, connectionLimit: most });
    onTestFinished(() => void source.end());
    return { source, take: () => source.getConnection() };
  };
  return {
    port: server.port,
    url: (port = server.port) => urlBy({ port }),
    run: (text) => server.query(text),
    driverConnection: () => connectTo(server),
    pool,
    locks: (source = server.url, options = {}) =>
      openSqlLocks({ mysql: source, ...PATIENT, ...options } as SqlLockModuleOptions),
    rowOf: (key) => rowOf(server, key),
  };
}

describeHazards('a MariaDB', async () => hazardDatabase());

describe('In a MariaDB alone', () => {
  it('S2: a lock is held for its ttl, although the zone of the server changes by an hour [G790]', async () => {
    const own = await ownMariaDb({ 'default-time-zone': '+01:00' });
    const inZone = () => locksOn(own);
    const winter = await inZone();
    const lock = await winter.acquire('key', { ttlMs: TTL_MS, watchdog: false });
    await own.query("SET GLOBAL time_zone = '+02:00'");
    const summer = await inZone();
    expect(await summer.tryAcquire('key')).toBeNull();
    const { remainingMs } = (await summer.inspect('key'))!;
    expect(remainingMs).toBeGreaterThan(TTL_MS / 2);
    expect(remainingMs).toBeLessThanOrEqual(TTL_MS);
    expect(await lock.release()).toBe(true);
    const next = await summer.acquire('key', { waitMs: 0 });
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  });

  it('S9: there is no deadlock, whatever order callers name their keys in, while rows are inserted, changed and deleted [G791]', async () => {
    const own = await ownMariaDb();
    const deadlocks = async () => {
      const [row] = await own.query(
        "SELECT count FROM information_schema.innodb_metrics WHERE name = 'lock_deadlocks'",
      );
      return Number(Object.values(row!)[0]); // MySQL names the column in capitals
    };
    const services = await Promise.all([1, 2, 3, 4].map(() => locksOn(own)));
    const keys = Array.from({ length: 60 }, () => freshKey());
    let granted = 0;
    const race = async (locks: (typeof services)[number], seed: number): Promise<void> => {
      const random = randomOf(seed);
      for (let round = 0; round < 20; round++) {
        const shuffled = keys.map((key) => ({ key, at: random() })).sort((one, other) => one.at - other.at);
        const held = await Promise.all(shuffled.map(({ key }) => locks.tryAcquire(key, { watchdog: false })));
        await Promise.all(held.map((lock) => lock?.extend(60_000).catch(() => {}))); // the sweep may have the row for a moment
        await Promise.all(held.map((lock) => lock?.release()));
        granted += held.filter(Boolean).length;
      }
    };
    let isRacing = true;
    const sweep = await sweeper(own);
    const failures: unknown[] = [];
    const sweeping = (async () => {
      while (isRacing) await sweep().catch((error: unknown) => failures.push(error));
    })();
    await Promise.all(services.map(race));
    isRacing = false;
    await sweeping;
    expect(failures).toEqual([]);
    expect(granted).toBeGreaterThan(keys.length);
    expect(await deadlocks()).toBe(0);
  });

  it('S12: a statement that waits for the table is given up by the server when its time has passed, and takes nothing later [G792]', async () => {
    const own = await ownMariaDb();
    const locks = await locksOn(own, { commandTimeoutMs: 500 });
    await until(() => locks.withLock('key', () => true).catch(() => false), { what: 'the row is there' });
    const other = await connectTo(own);
    await other.query('LOCK TABLES resource_lock WRITE');
    await expect(locks.acquire('key', { ttlMs: TTL_MS, waitMs: 0 })).rejects.toThrow();
    const waiting = "SELECT 1 FROM information_schema.processlist WHERE state LIKE 'Waiting for table metadata lock'";
    // A new connection also asks for the table before it is used.
    await until(async () => (await own.query(waiting)).length === 0, { what: 'no statement waits any more' });
    await other.query('UNLOCK TABLES');
    expect((await rowOf(own, 'key'))!.isHeld).toBe(false);
    const lock = await until(() => locks.acquire('key').catch(() => undefined), { what: 'the lock is acquired' });
    expect(await lock.release()).toBe(true);
  });

  it('S16: a row that is taken while the table is swept is left alone [G793]', async () => {
    const locks = await openAnother();
    const key = freshKey();
    await (await locks.acquire(key)).release();
    const taking = await sessionOn(server);
    const later = 'DATE_ADD(UTC_TIMESTAMP(6), INTERVAL 1 HOUR)';
    await taking.query(
      `UPDATE resource_lock SET resource_lock_value = 'a process', update_time = UTC_TIMESTAMP(6), expires_at = ${later}
       WHERE resource_lock_key = ?`,
      [Buffer.from(key)],
    );
    const sweep = await sweeper(server);
    await sweep(); // it does not wait for the transaction
    await taking.commit();
    await sweep();
    expect((await rowOf(server, key))!).toMatchObject({ holder: 'a process', isHeld: true });
  });

  it('S16: a sweep does not wait for a row that another session has locked, and deletes the others [G836]', async () => {
    const own = await ownMariaDb();
    const locks = await locksOn(own);
    const keys = Array.from({ length: 150 }, (_, at) => `key ${String(at).padStart(3, '0')}`);
    await Promise.all(keys.map(async (key) => (await locks.acquire(key)).release()));
    await own.query(
      `INSERT INTO resource_lock VALUES (X'FF', 'somebody else', 1, 0, 0, '1970-01-01', '1970-01-01', '1970-01-01')`,
    );
    const session = await sessionOn(own, keys[70]!);
    const sweep = await sweeper(own);
    await sweep();
    const left = async () =>
      (await own.query('SELECT CAST(resource_lock_key AS char) AS name FROM resource_lock')).map(({ name }) => name);
    expect(await left()).toEqual([keys[70]]);
    await session.commit();
    await sweep();
    expect(await left()).toEqual([]);
  });

  it('S16: a lock whose row is just being deleted is taken afterwards, with a greater token [G794]', async () => {
    const locks = await openAnother();
    const key = freshKey();
    const before = await locks.acquire(key);
    await before.release();
    const sweeping = await sessionOn(server);
    await sweeping.query('DELETE FROM resource_lock WHERE resource_lock_key = ?', [Buffer.from(key)]);
    expect(await locks.tryAcquire(key)).toBeNull();
    const acquiring = locks.acquire(key, { waitMs: TTL_MS });
    await sweeping.commit();
    const lock = await acquiring;
    expect(lock.fencingToken).toBeGreaterThan(before.fencingToken);
    expect((await rowOf(server, key))!).toMatchObject({ holder: lock.owner, isHeld: true });
    expect(await lock.release()).toBe(true);
  });
});
