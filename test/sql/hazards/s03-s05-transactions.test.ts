import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freshKey } from '../../support/claims.js';
import { PostgresServer } from '../../support/postgres-server.js';
import { until } from '../../support/until.js';
import { NAIVE_TABLES } from './naive.js';
import { connectTo, expire, locksOn, rowOf } from './stage.js';

const TTL_MS = 600_000;

let server: PostgresServer;
beforeAll(async () => {
  server = await PostgresServer.start();
  await server.query(NAIVE_TABLES);
  await server.query('CREATE TABLE stock (id text PRIMARY KEY, count int NOT NULL)');
});
afterAll(() => server.stop());

describe('S5: a transaction guards the lock while its lease ends', () => {
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
