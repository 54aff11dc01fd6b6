import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { LockUnavailableError } from 'nest-redis-lock';
import { ddl, postgresStatements } from '../../../lib/stores/sql/postgres/statements.js';
import { freshKey } from '../../support/claims.js';
import { PostgresServer } from '../../support/postgres-server.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import { NAIVE_TABLES } from './naive.js';
import { blockedSessions, connectTo, expire, locksOn, rowOf } from './stage.js';

const TTL_MS = 600_000;

let server: PostgresServer;
beforeAll(async () => {
  server = await PostgresServer.start();
  await server.query(NAIVE_TABLES);
});
afterAll(() => server.stop());

/** A way to the server that loses what it is told to. */
async function wayTo({ port }: PostgresServer): Promise<{ proxy: TcpProxy; url: string }> {
  const proxy = await TcpProxy.start(port);
  onTestFinished(() => proxy.stop());
  return { proxy, url: `postgres://postgres@127.0.0.1:${proxy.port}/postgres` };
}

/** When the one process that waits for a lock has last asked, as soon as it does. */
const askedAt = (key: string) =>
  until(
    async () => {
      const statement = `SELECT split_part(waiters[1], ' ', 4) AS asked FROM resource_lock WHERE resource_lock_key = $1`;
      return (await server.query(statement, [key]))[0]?.asked as string | null | undefined;
    },
    { what: 'another one waits' },
  );

describe('S12: a statement that was given up runs late', () => {
  it('this library has the server give up a statement when its time is over, so that it takes nothing later [G765]', async () => {
    const locks = await locksOn(server, { commandTimeoutMs: 400 });
    const key = freshKey();
    await locks.withLock(key, () => {});
    const other = await connectTo(server);
    await other.query('BEGIN');
    await other.query('SELECT 1 FROM resource_lock WHERE resource_lock_key = $1 FOR UPDATE', [key]);
    await expect(locks.acquire(key, { ttlMs: TTL_MS, waitMs: 0 })).rejects.toThrow(LockUnavailableError);
    await until(async () => (await blockedSessions(server)) === 0, { what: 'no statement waits any more' });
    await other.query('COMMIT');
    expect((await rowOf(server, key))!.isHeld).toBe(false);
  });

  it('this library gives back and extends no lock but that of the owner that it names [G766]', async () => {
    const [one, other] = [await locksOn(server), await locksOn(server)];
    const database = await connectTo(server);
    const key = freshKey();
    const first = await one.acquire(key, { ttlMs: TTL_MS });
    await expire(server, key);
    const second = await other.acquire(key, { ttlMs: TTL_MS, waitMs: 0 });
    const { extend, give, giveAndTurn } = postgresStatements('"resource_lock"');
    expect((await database.query(give.text, [key, first.owner])).rows).toEqual([]);
    const turn = await database.query(giveAndTurn.text, [
      [key],
      [first.owner],
      [null],
      [null],
      [0],
      [1],
      [null],
      [false],
      [0],
    ]);
    expect(turn.rows).toMatchObject([{ gives: 0, granted: null }]);
    const extended = await database.query(extend.text, [[key], [first.owner], [TTL_MS], [false], [0]]);
    expect(extended.rows).toMatchObject([{ is_done: 0 }]);
    expect((await rowOf(server, key))!).toMatchObject({ holder: second.owner, isHeld: true });
    expect(await second.release()).toBe(true);
  });
});

describe('S13: the server only reads, as after a failover', () => {
  let replica: PostgresServer;
  beforeAll(async () => {
    replica = await PostgresServer.start();
    await replica.query(`${NAIVE_TABLES}; ${ddl('"resource_lock"')}`);
    await replica.becomeReplica();
  });
  afterAll(() => replica.stop());

  it('this library says that locks are unavailable, and what to do, instead of that another one holds the lock [G767]', async () => {
    const locks = await locksOn(replica, { lazyConnect: true });
    const refusal = await until(
      async () => {
        const error: unknown = await locks.tryAcquire(freshKey()).then(String, (thrown: unknown) => thrown);
        return error instanceof LockUnavailableError && error.message.includes('only reads') ? error : undefined;
      },
      { what: 'the replica is recognised' },
    );
    expect(refusal).toMatchObject({ code: 'LOCK_UNAVAILABLE', status: 503 });
    expect(refusal.message).toContain('the address leads to the primary');
  });
});

describe('S14: whoever waits is not told of its turn', () => {
  it('this library finds its turn although the connection on which it listens is half open [G768]', async () => {
    const way = await wayTo(server);
    const [holder, waiter] = [await locksOn(server), await locksOn(way)];
    const key = freshKey();
    const lock = await holder.acquire(key, { ttlMs: TTL_MS });
    const waiting = waiter.acquire(key, { waitMs: TTL_MS });
    const listening = `SELECT 1 FROM pg_stat_activity WHERE query LIKE 'LISTEN nest%' AND state = 'idle'`;
    await until(async () => (await server.query(listening)).length, { what: 'it has begun to listen' });
    const asked = await askedAt(key);
    await until(async () => (await askedAt(key)) !== asked, { what: 'it has asked again, as it hears itself now' });
    way.proxy.muteSubscriptions();
    expect(way.proxy.hasMuted).toBe(true);
    expect(await lock.release()).toBe(true);
    expect((await waiting).fencingToken).toBeGreaterThan(lock.fencingToken);
  });

  it('this library finds its turn although the process that gave it on died before it said so [G769]', async () => {
    const waiter = await locksOn(server);
    const key = freshKey();
    const dying = await connectTo(server);
    const { take, turn } = postgresStatements('"resource_lock"');
    await waiter.withLock(key, () => {});
    expect((await dying.query(take.text, [key, 'dying', TTL_MS])).rowCount).toBe(1);
    const waiting = waiter.acquire(key, { waitMs: TTL_MS });
    await askedAt(key);
    const given = await dying.query(turn.text, [[key], ['dying'], [null], [null], [0], [1], [null], [false], [0]]);
    expect(given.rows).toMatchObject([{ gives: 1, granted: expect.any(String) }]);
    const lock = await waiting;
    expect((await rowOf(server, key))!).toMatchObject({ holder: lock.owner, isHeld: true });
  });
});
