import type pg from 'pg';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
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

describe('S3: the lock is taken in the transaction of its caller', () => {
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
