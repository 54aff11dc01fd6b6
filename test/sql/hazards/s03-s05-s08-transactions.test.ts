import pg from 'pg';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { LockOptionsError } from '../../../lib/api/errors.js';
import type { PostgresSource } from '../../../lib/stores/sql/postgres/postgres-source.js';
import { freshKey } from '../../support/claims.js';
import { PostgresServer } from '../../support/postgres-server.js';
import { until } from '../../support/until.js';
import { NAIVE_TABLES, shedLock, shedLockByDatabaseTime, shedUnlock, verrouLock } from './naive.js';
import { connectTo, expire, locksOn, rowOf } from './stage.js';

const TTL_MS = 600_000;

let server: PostgresServer;
beforeAll(async () => {
  server = await PostgresServer.start();
  await server.query(NAIVE_TABLES);
  await server.query('CREATE TABLE stock (id text PRIMARY KEY, count int NOT NULL)');
});
afterAll(() => server.stop());

/** The pool of an application. It ends with the test, whoever has its connections. */
function poolOf(config: pg.PoolConfig = {}): pg.Pool {
  const pool = new pg.Pool({ connectionString: server.url, ...config });
  pool.on('error', () => {});
  onTestFinished(() => void pool.end());
  return pool;
}

describe('S3: the lock is taken in the transaction of its caller', () => {
  it('a naive lock is free for all once that transaction is rolled back, although the work goes on', async () => {
    const [a, b] = [await connectTo(server), await connectTo(server)];
    const key = freshKey();
    await a.query('BEGIN');
    expect(await shedLock(a, key, 'A', TTL_MS)).toBe(true);
    await a.query('ROLLBACK');
    expect(await shedLock(b, key, 'B', TTL_MS)).toBe(true);
  });

  it('a naive lock by the time of the database ends as soon as it is taken, as that time is when the transaction began', async () => {
    const [a, b] = [await connectTo(server), await connectTo(server)];
    const key = freshKey();
    await a.query('BEGIN');
    await a.query('SELECT pg_sleep(0.3)');
    expect(await shedLockByDatabaseTime(a, key, 'A', 200)).toBe(true);
    await a.query('COMMIT');
    expect(await shedLockByDatabaseTime(b, key, 'B', TTL_MS)).toBe(true);
  });

  it('a naive lock that another one holds breaks the transaction of whoever asks for it', async () => {
    const [a, b] = [await connectTo(server), await connectTo(server)];
    const key = freshKey();
    expect(await verrouLock(a, key, 'A', TTL_MS)).toBe(true);
    await b.query('BEGIN');
    await expect(verrouLock(b, key, 'B', TTL_MS)).rejects.toMatchObject({ code: '25P02' });
  });

  it('this library takes locks on connections of its own: a transaction of the work changes nothing, and is not changed [G752]', async () => {
    const pool = poolOf();
    const others = await locksOn(server);
    const [key, taken] = [freshKey(), freshKey()];
    await others.acquire(taken);

    const tx = await pool.connect();
    await tx.query('BEGIN');
    const locks = await locksOn(server, { postgres: pool });
    const lock = await locks.acquire(key, { ttlMs: TTL_MS });
    expect(await locks.tryAcquire(taken)).toBeNull();
    await tx.query('SELECT 1');
    await tx.query('ROLLBACK');
    tx.release();
    expect((await rowOf(server, key))!).toMatchObject({ holder: lock.owner, isHeld: true });
    expect(await others.tryAcquire(key)).toBeNull();
    expect(await lock.release()).toBe(true);
  });

  it('this library refuses a connection of the application, in which a transaction may be open [G753]', async () => {
    const connection = (await connectTo(server)) as unknown as PostgresSource;
    const opening = (async () => locksOn(server, { postgres: connection }))();
    await expect(opening).rejects.toThrow(LockOptionsError);
    await expect(opening).rejects.toThrow(/would end with its rollback/);
  });
});

describe('S5: a transaction guards the lock while its lease ends', () => {
  it('a naive lock is taken over by ON CONFLICT DO UPDATE all the same, and an update is lost', async () => {
    const [a, b] = [await connectTo(server), await connectTo(server)];
    const key = freshKey();
    await server.query('INSERT INTO stock VALUES ($1, 10)', [key]);
    const sell = async (client: pg.Client, seen: number) =>
      client.query('UPDATE stock SET count = $2 WHERE id = $1', [key, seen - 1]);
    const look = async (client: pg.Client) =>
      (await client.query<{ count: number }>('SELECT count FROM stock WHERE id = $1', [key])).rows[0]!.count;

    expect(await shedLock(a, key, 'A', TTL_MS)).toBe(true);
    await a.query('BEGIN');
    await a.query('SELECT 1 FROM shedlock WHERE name = $1 FOR KEY SHARE', [key]);
    const seenByA = await look(a);
    await shedUnlock(b, key); // its lease is over
    expect(await shedLock(b, key, 'B', TTL_MS)).toBe(true);
    await sell(b, await look(b));
    await sell(a, seenByA);
    await a.query('COMMIT');
    expect(await look(b)).toBe(9); // of 10, two were sold
  });

  it('this library takes it over once that transaction has ended, whether it is asked for at once, waited for, or had no holder [G754]', async () => {
    const [a, b] = [await locksOn(server), await locksOn(server)];
    const key = freshKey();
    const lock = await a.acquire(key, { ttlMs: TTL_MS });
    const tx = await connectTo(server);
    await tx.query('BEGIN');
    const guard = 'SELECT 1 FROM resource_lock WHERE resource_lock_key = $1 AND resource_lock_value = $2 FOR KEY SHARE';
    expect((await tx.query(guard, [key, lock.owner])).rowCount).toBe(1);
    await expire(server, key); // which an extension could undo as well: a guard lets both through

    expect(await b.tryAcquire(key)).toBeNull();
    let hasTurn = false;
    const waiting = b.acquire(key, { waitMs: TTL_MS }).finally(() => (hasTurn = true));
    await until(
      async () => {
        const [row] = await server.query(
          'SELECT cardinality(waiters) AS count FROM resource_lock WHERE resource_lock_key = $1',
          [key],
        );
        return Number(row!.count) > 0;
      },
      { what: 'it has asked in vain, and waits' },
    );
    expect(await b.tryAcquire(key)).toBeNull();
    expect((await rowOf(server, key))!.holder).toBe(lock.owner);
    expect(hasTurn).toBe(false);
    await tx.query('COMMIT');
    expect((await waiting).fencingToken).toBeGreaterThan(lock.fencingToken);
  });
});

describe('S8: all connections of the pool are in use by work that waits to give its lock back', () => {
  it('a naive lock on the pool of the work cannot be given back: nothing goes on until a time limit ends it', async () => {
    const pool = poolOf({ max: 2, connectionTimeoutMillis: 300 });
    const keys = [freshKey(), freshKey()];
    for (const key of keys) expect(await shedLock(pool, key, 'A', TTL_MS)).toBe(true);
    const transactions = [await pool.connect(), await pool.connect()];
    const releases = await Promise.allSettled(keys.map((key) => shedUnlock(pool, key)));
    expect(releases.map(({ status }) => status)).toEqual(['rejected', 'rejected']);
    for (const tx of transactions) tx.release();
    for (const key of keys) expect(await shedLock(pool, key, 'B', TTL_MS)).toBe(false); // held, and nobody works
  });

  it('this library has connections of its own: locks are taken, waited for and given back although the pool has none left [G755]', async () => {
    const pool = poolOf({ max: 2 });
    const [locks, others] = [await locksOn(server, { postgres: pool }), await locksOn(server)];
    const transactions = [await pool.connect(), await pool.connect()];
    const key = freshKey();
    const first = await locks.acquire(key, { ttlMs: TTL_MS });
    const waiting = others.acquire(key, { waitMs: TTL_MS });
    await until(async () => (await locks.inspect(key))?.waitingProcesses.length, { what: 'another one waits' });
    expect(await first.release()).toBe(true);
    const second = await waiting;
    const again = locks.acquire(key, { waitMs: TTL_MS });
    expect(await second.release()).toBe(true);
    expect(await (await again).release()).toBe(true);
    expect(pool).toMatchObject({ totalCount: 2, idleCount: 0, waitingCount: 0 });
    for (const tx of transactions) tx.release();
  });
});
