import 'reflect-metadata';
import { guard, guardStatement } from 'nest-redis-lock/sql';
import pg from 'pg';
import { DataSource, type EntityManager } from 'typeorm';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import {
  type Lock,
  type LockEvent,
  LockLostError,
  LockOptionsError,
  type LockService,
  type LockSet,
} from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { openLocks, openSqlLocks } from '../support/open-locks.js';
import { PostgresServer } from '../support/postgres-server.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

let server: PostgresServer;

beforeAll(async () => {
  server = await PostgresServer.start();
  await server.query('CREATE TABLE note (text text)');
});
afterAll(() => server.stop());

/** Another process. */
const openAnother = (options: { cohortMs?: number } = {}): Promise<LockService> =>
  openSqlLocks({ postgres: server.url, commandTimeoutMs: 20_000, ...options });

/** A connection of the application. */
async function client(url = server.url): Promise<pg.Client> {
  const opened = new pg.Client(url);
  await opened.connect();
  onTestFinished(() => opened.end());
  return opened;
}

/** Ends the lease in the table, as if its holder had been paused for as long: its transaction and its process know nothing of it. */
async function endLease(key: string): Promise<void> {
  await server.query(
    "UPDATE resource_lock SET expires_at = clock_timestamp() - interval '1 s' WHERE resource_lock_key = $1",
    [key],
  );
}

async function waitingFor(key: string): Promise<number> {
  const [row] = await server.query(
    'SELECT cardinality(waiters) AS count FROM resource_lock WHERE resource_lock_key = $1',
    [key],
  );
  return Number(row?.count ?? 0);
}

const free = (lock: Lock | LockSet | null): Promise<boolean> | undefined => lock?.release();

describe('a transaction that guards a lock', () => {
  it('keeps everybody else from the lock until it ends, also when the lease ended long before [G680]', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const key = freshKey();
    const tx = await client();
    const lock = await a.acquire(key, { watchdog: false });
    await tx.query('BEGIN');
    await guard(lock, tx);
    await endLease(key);
    expect(await b.tryAcquire(key)).toBeNull();
    await tx.query('COMMIT');
    expect(await free(await b.tryAcquire(key))).toBe(true);
  });

  it('fails once somebody else has taken the lock over, and nothing that it wrote takes effect [G681]', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const key = freshKey();
    const tx = await client();
    const lock = await a.acquire(key, { watchdog: false });
    await endLease(key);
    const lockOfB = await b.acquire(key);
    await tx.query('BEGIN');
    await tx.query('INSERT INTO note VALUES ($1)', [key]);
    const refusal: unknown = await guard(lock, (text, values) => tx.query(text, values)).catch(
      (error: unknown) => error,
    );
    expect(refusal).toBeInstanceOf(LockLostError);
    expect(refusal).toMatchObject({ key, reason: 'stolen', cause: { code: '22P02' } });
    // Also where the error is swallowed.
    expect(await tx.query('COMMIT')).toMatchObject({ command: 'ROLLBACK' });
    expect(await server.query('SELECT FROM note WHERE text = $1', [key])).toEqual([]);
    expect(await lockOfB.release()).toBe(true);
  });

  it('fails by its statement alone, when its answer is read by nobody [G682]', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const key = freshKey();
    const tx = await client();
    const lock = await a.acquire(key, { watchdog: false });
    const { text, values } = guardStatement(lock);
    await endLease(key);
    const lockOfB = await b.acquire(key);
    await tx.query('BEGIN');
    await expect(tx.query(text, values)).rejects.toThrow('lock 1 of the guard is not held any more');
    await tx.query('ROLLBACK');
    await lockOfB.release();
  });

  it('lets extensions of the lock through, and others take a place in its queue [G683]', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const key = freshKey();
    const tx = await client();
    const lock = await a.acquire(key);
    await tx.query('BEGIN');
    await guard(lock, tx);
    await lock.extend(40_000);
    expect(lock.remainingMs).toBeGreaterThan(30_000);
    const waiting = b.acquire(key, { waitMs: 60_000 });
    await until(async () => (await waitingFor(key)) === 1, { what: 'the other has a place in the queue' });
    await tx.query('COMMIT');
    expect(await lock.release()).toBe(true);
    expect(await free(await waiting)).toBe(true);
  });

  it('that has committed is no hindrance to a release in the next line [G684]', async () => {
    const a = await openAnother();
    const events: LockEvent[] = [];
    a.events$.subscribe((event) => events.push(event));
    for (let turn = 0; turn < 20; turn++) {
      const key = freshKey();
      const tx = await client();
      const lock = await a.acquire(key);
      await tx.query('BEGIN');
      await guard(lock, tx);
      await tx.query('COMMIT');
      expect(await lock.release()).toBe(true);
    }
    expect(events.filter(({ type }) => type === 'release-failed')).toEqual([]);
  });

  it('holds up a release that comes before it has ended, which is repeated until then [G685]', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const key = freshKey();
    const tx = await client();
    const events: LockEvent[] = [];
    a.events$.subscribe((event) => events.push(event));
    await free(await a.acquire(key)); // one that was used before is taken and given by other statements
    const lock = await a.acquire(key);
    await tx.query('BEGIN');
    await guard(lock, tx);
    expect(await lock.release()).toBe(false);
    const [failed] = events.filter((event) => event.type === 'release-failed');
    expect(failed?.causes[0]?.advice).toContain('Release the lock after the transaction has ended.');
    expect(await b.tryAcquire(key)).toBeNull();
    await tx.query('COMMIT');
    await until(async () => free(await b.tryAcquire(key)), { what: 'the lock is free' });
  });

  it('whose client is killed keeps the lock no longer than its session [G686]', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const key = freshKey();
    const tx = new pg.Client(server.url);
    tx.on('error', () => {});
    await tx.connect();
    const lock = await a.acquire(key, { watchdog: false });
    await tx.query('BEGIN');
    await guard(lock, tx);
    const [pid] = (await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')).rows;
    await endLease(key);
    expect(await b.tryAcquire(key)).toBeNull();
    await server.query('SELECT pg_terminate_backend($1)', [pid!.pid]);
    await until(async () => free(await b.tryAcquire(key)), { what: 'the lock is free' });
  });

  it('guards all locks of a set, and names the one that is not held any more, and whether another owner holds it [G687]', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const keys = [freshKey('z'), freshKey('é'), freshKey('a')];
    const tx = await client();
    const locks = await a.acquireAll(keys, { watchdog: false });
    expect(guardStatement(locks).values.filter((value) => keys.includes(String(value)))).toEqual(locks.keys);
    await tx.query('BEGIN');
    await guard(locks, tx);
    for (const key of keys) await endLease(key);
    for (const key of keys) expect(await b.tryAcquire(key)).toBeNull();
    await tx.query('COMMIT');
    const lockOfB = await b.acquire(keys[1]!);
    await tx.query('BEGIN');
    await expect(guard(locks, tx)).rejects.toMatchObject({ name: 'LockLostError', key: keys[1], reason: 'stolen' });
    await tx.query('ROLLBACK');
    await lockOfB.release();
    await tx.query('BEGIN');
    await expect(guard(locks, tx)).rejects.toMatchObject({ key: keys[1], reason: 'expired' });
    await tx.query('ROLLBACK');
  });

  it('guards locks whose keys no text of the database can hold [G688]', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const keys = ['\0', '\\', "'; DROP TABLE note --", '$1 ? :name'].map((text) => `${freshKey()}${text}`);
    const tx = await client();
    const locks = await a.acquireAll(keys);
    await tx.query('BEGIN');
    await guard(locks, tx);
    for (const key of keys) await expect(b.forceRelease(key)).rejects.toThrow('a transaction that guards the lock');
    await tx.query('COMMIT');
    expect(await locks.release()).toBe(true);
  });

  it('that began to read before the lock was granted has to be begun anew, as it may have read what was there before [G689]', async () => {
    const a = await openAnother();
    const key = freshKey();
    await free(await a.acquire(key));
    const tx = await client();
    await tx.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await tx.query('SELECT FROM note');
    const lock = await a.acquire(key);
    await expect(guard(lock, tx)).rejects.toMatchObject({ code: '40001' });
    await tx.query('ROLLBACK');
    await tx.query('BEGIN ISOLATION LEVEL REPEATABLE READ');
    await guard(lock, tx);
    await tx.query('COMMIT');
    expect(await lock.release()).toBe(true);
  });
});

/** Who may guard: the lock that the call was granted, or a handle of the same lease inside. */
const HANDLES: [by: string, work: (locks: LockService, lock: Lock, tx: pg.Client) => Promise<void>][] = [
  ['its holder', (_, lock, tx) => guard(lock, tx)],
  ['a nested call', (locks, { key }, tx) => locks.withLock(key, (nested) => guard(nested, tx))],
];

describe('a lock that others of the process wait for', () => {
  /** Has two calls of a service wait for a lock that another holds, then gives it to the first of them, for both. */
  async function twoInLine(work: (locks: LockService, lock: Lock) => Promise<void>) {
    const [a, b] = [await openAnother({ cohortMs: 60_000 }), await openAnother()]; // also on a busy machine
    const key = freshKey();
    const before = await b.acquire(key);
    const [begun, end] = [new Gate(), new Gate()];
    let owner: string | undefined;
    const first = a.withLock(key, { waitMs: 60_000 }, async (lock) => {
      owner = lock.owner;
      await work(a, lock);
      begun.open();
      await end.opened;
    });
    const second = a.acquire(key, { waitMs: 60_000 });
    // The place is for both calls.
    const turns = async () => {
      const place = "split_part(coalesce(waiters[1], '0 0'), ' ', 2)::int";
      const [row] = await server.query(`SELECT ${place} AS turns FROM resource_lock WHERE resource_lock_key = $1`, [
        key,
      ]);
      return Number(row?.turns);
    };
    await until(async () => (await turns()) >= 2, { what: 'both calls wait in the queue' });
    await before.release();
    await begun.opened;
    return { key, a, first, second, end, ownerOfFirst: () => owner };
  }

  /** Has a transaction read while the first call holds the lock, then passes the lock on to the second call. */
  async function readBeforePassedOn(level: string) {
    const { first, second, end, ownerOfFirst } = await twoInLine(async () => {});
    const tx = await client();
    await tx.query(`BEGIN ISOLATION LEVEL ${level}`);
    await tx.query('SELECT FROM note');
    end.open();
    await first;
    const lock = await second;
    expect(lock.owner).toBe(ownerOfFirst());
    return { lock, tx };
  }

  it.each(['REPEATABLE READ', 'SERIALIZABLE'])(
    'is not guarded by a transaction at %s that began before the lock was passed on to its call, but by the next [G950]',
    async (level) => {
      const { lock, tx } = await readBeforePassedOn(level);
      await expect(guard(lock, tx)).rejects.toMatchObject({ code: '40001', cause: { code: '22P02' } });
      expect(await tx.query('COMMIT')).toMatchObject({ command: 'ROLLBACK' });
      // Repeated, as an application does: a statement that arrives late makes the transaction look older than it is.
      const isGuarded = async () => {
        await tx.query(`BEGIN ISOLATION LEVEL ${level}`);
        const guarded = await guard(lock, tx).then(
          () => true,
          () => false,
        );
        await tx.query('COMMIT');
        return guarded;
      };
      await until(isGuarded, { what: 'a transaction under the lock is accepted' });
      expect(await lock.release()).toBe(true);
    },
  );

  it.each(HANDLES)(
    'is not passed on to the next of them by a release that comes before the commit, if %s guards it [G690]',
    async (_, work) => {
      const tx = await client();
      await tx.query('BEGIN');
      const { a, key, first, second, end, ownerOfFirst } = await twoInLine((locks, lock) => work(locks, lock, tx));
      let isGranted = false;
      void second.then(() => (isGranted = true));
      const failures: LockEvent[] = [];
      a.events$.subscribe((event) => event.type === 'release-failed' && failures.push(event));
      end.open();
      await first;
      await until(() => failures.length > 0, { what: 'the release was not confirmed' });
      expect(isGranted).toBe(false);
      await endLease(key);
      expect(await a.inspect(key)).toBeNull();
      expect(isGranted).toBe(false);
      await tx.query('COMMIT');
      const lock = await second;
      expect(lock.owner).not.toBe(ownerOfFirst());
      await lock.release();
    },
  );
});

describe('guard', () => {
  const neverCalled = (): Promise<never> => Promise.reject(new Error('a statement was sent'));

  it('refuses a lock that was released, or is known to be lost, whatever comes of its statement [G691]', async () => {
    const locks = await openAnother();
    const released = await locks.acquire(freshKey());
    await released.release();
    expect(() => guardStatement(released)).toThrow(LockLostError);
    await expect(guard(released, neverCalled)).rejects.toMatchObject({ name: 'LockLostError', reason: 'released' });
    const key = freshKey();
    const lost = await locks.acquire(key);
    await locks.forceRelease(key);
    expect(() => guardStatement(lost)).toThrow(LockLostError);
    await expect(guard(lost, neverCalled)).rejects.toMatchObject({ name: 'LockLostError', reason: 'forced' });
  });

  it('aborts the transaction of a lock that is known to be lost, also where the error is swallowed [G951]', async () => {
    const locks = await openAnother();
    const [released, forced, key] = [await locks.acquire(freshKey()), await locks.acquire(freshKey()), freshKey()];
    await released.release();
    await locks.forceRelease(forced.key);
    const tx = await client();
    for (const lock of [released, forced]) {
      await tx.query('BEGIN');
      await tx.query('INSERT INTO note VALUES ($1)', [key]);
      await expect(guard(lock, tx)).rejects.toBeInstanceOf(LockLostError);
      expect(await tx.query('COMMIT')).toMatchObject({ command: 'ROLLBACK' });
    }
    expect(await server.query('SELECT FROM note WHERE text = $1', [key])).toEqual([]);
  });

  it('is refused in a nested transaction of TypeORM, whose rollback would end it, and holds in the outermost [G952]', async () => {
    const locks = await openAnother();
    const lock = await locks.acquire(freshKey());
    const dataSource = await new DataSource({ type: 'postgres', url: server.url }).initialize();
    onTestFinished(() => dataSource.destroy());
    await dataSource.transaction(async (tx) => {
      for (const transaction of [(inner: EntityManager) => inner, (inner: EntityManager) => inner.queryRunner!]) {
        const nested = tx.transaction((inner) => guard(lock, transaction(inner)));
        await expect(nested).rejects.toThrow(/nested transaction.*Call it in the outermost transaction/);
      }
      await guard(lock, tx);
    });
    expect(await lock.release()).toBe(true);
  });

  it('refuses locks of other stores with a sentence [G692]', async () => {
    const redis = await RedisServer.start();
    onTestFinished(() => redis.stop());
    for (const locks of [await openLocks({ memory: true }), await openLocks({ redis: redis.url })]) {
      const [lock, set] = [await locks.acquire('key'), await locks.acquireAll(['one', 'two'])];
      expect(() => guardStatement(lock)).toThrow(LockOptionsError);
      await expect(guard(lock, neverCalled)).rejects.toThrow(/SqlLockModule.*got "key", which another store keeps/);
      await expect(guard(set, neverCalled)).rejects.toThrow('got "one" and "two", which another store keeps');
      await Promise.all([lock.release(), set.release()]);
    }
  });

  it('refuses to run outside of a transaction, where it would guard nothing [G693]', async () => {
    const locks = await openAnother();
    const pool = new pg.Pool({ connectionString: server.url });
    onTestFinished(() => pool.end());
    const lock = await locks.acquire(freshKey());
    await expect(guard(lock, pool)).rejects.toThrow(LockOptionsError);
    await expect(guard(lock, await client())).rejects.toThrow('guard() was called outside of a transaction');
    await lock.release();
  });

  it('refuses what is no lock, and what cannot run a statement', async () => {
    const locks = await openAnother();
    const lock = await locks.acquire(freshKey());
    await expect(guard({ key: 'key' } as Lock, neverCalled)).rejects.toThrow('lock must be a lock, or a set of locks');
    await expect(guard(lock, undefined as never)).rejects.toThrow('transaction must be a function');
    await expect(guard(lock, {} as never)).rejects.toThrow('transaction must be a function');
    const forgetful = guard(lock, (() => undefined) as never);
    await expect(forgetful).rejects.toThrow('must be run by what returns a promise: got undefined. Roll the');
    await expect(forgetful).rejects.toThrow(LockOptionsError);
    await lock.release();
  });
});
