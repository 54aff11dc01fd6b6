import 'reflect-metadata';
import { guard, guardStatement } from 'nest-redis-lock/sql';
import pg from 'pg';
import { DataSource, type EntityManager } from 'typeorm';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type Lock, type LockEvent, LockLostError, LockOptionsError, type LockService } from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { redisServer } from '../support/stage.js';
import { until } from '../support/until.js';
import { describeLostUpdates } from './lost-updates.js';
import { connectTo, expire, locksOn, postgresOfFile, queued, rowOf } from './stage.js';

const server = await postgresOfFile();
await server.query('CREATE TABLE note (text text)');

/** Two processes, the first with a lock whose lease nobody extends, and a connection of the application. */
async function stage() {
  const [a, b] = [await locksOn(server), await locksOn(server)];
  const tx = await connectTo(server);
  const lock = await a.acquire(freshKey(), { watchdog: false });
  return { a, b, key: lock.key, tx, lock };
}

/** The same, with an open transaction that guards the lock. */
async function guarded() {
  const staged = await stage();
  await staged.tx.query('BEGIN');
  await guard(staged.lock, staged.tx);
  return staged;
}

/** Waits until another process can take the lock. */
const isFree = (locks: LockService, key: string) =>
  until(async () => (await locks.tryAcquire(key))?.release(), { what: 'the lock is free' });

/** The reasons why releases were not confirmed. */
function failuresOf(locks: LockService) {
  const failures: Extract<LockEvent, { type: 'release-failed' }>[] = [];
  locks.events$.subscribe((event) => event.type === 'release-failed' && failures.push(event));
  return failures;
}

describe('a transaction that guards a lock', () => {
  it('keeps everybody else from the lock until it ends, also when the lease ended long before [G680]', async () => {
    const { b, key, tx } = await guarded();
    await expire(server, key);
    expect(await b.tryAcquire(key)).toBeNull();
    await tx.query('COMMIT');
    expect(await (await b.tryAcquire(key))?.release()).toBe(true);
  });

  it('fails once somebody else has taken the lock over, and nothing that it wrote takes effect [G681]', async () => {
    const { b, key, lock, tx } = await stage();
    await expire(server, key);
    const lockOfB = await b.acquire(key);
    await tx.query('BEGIN');
    await tx.query('INSERT INTO note VALUES ($1)', [key]);
    const refusal: unknown = await guard(lock, (text, values) => tx.query(text, values)).catch(
      (error: unknown) => error,
    );
    expect(refusal).toBeInstanceOf(LockLostError);
    expect(refusal).toMatchObject({ key, reason: 'stolen', cause: { code: '22P02' } });
    // Even if the error is swallowed.
    expect(await tx.query('COMMIT')).toMatchObject({ command: 'ROLLBACK' });
    expect(await server.query('SELECT FROM note WHERE text = $1', [key])).toEqual([]);
    expect(await lockOfB.release()).toBe(true);
  });

  it('fails by its statement alone, even if nobody reads the answer [G682]', async () => {
    const { b, key, lock, tx } = await stage();
    const { text, values } = guardStatement(lock);
    await expire(server, key);
    const lockOfB = await b.acquire(key);
    await tx.query('BEGIN');
    await expect(tx.query(text, values)).rejects.toThrow('lock 1 of the guard is not held any more');
    await tx.query('ROLLBACK');
    await lockOfB.release();
  });

  it('lets extensions of the lock through, and others take a place in its queue [G683]', async () => {
    const { b, key, lock, tx } = await guarded();
    await lock.extend(40_000);
    expect(lock.remainingMs).toBeGreaterThan(30_000);
    const waiting = b.acquire(key, { waitMs: 60_000 });
    await queued(server, key);
    await tx.query('COMMIT');
    expect(await lock.release()).toBe(true);
    expect(await (await waiting).release()).toBe(true);
  });

  it('that has committed is no hindrance to a release in the next line [G684]', async () => {
    const a = await locksOn(server);
    const failures = failuresOf(a);
    const tx = await connectTo(server);
    for (let turn = 0; turn < 20; turn++) {
      const lock = await a.acquire(freshKey());
      await tx.query('BEGIN');
      await guard(lock, tx);
      await tx.query('COMMIT');
      expect(await lock.release()).toBe(true);
    }
    expect(failures).toEqual([]);
  });

  it('holds up a release that comes before it has ended, which is repeated until then [G685]', async () => {
    const { a, b, key, lock: before, tx } = await stage();
    await before.release();
    const failures = failuresOf(a);
    const lock = await a.acquire(key); // other statements take and release a lock that was used before
    await tx.query('BEGIN');
    await guard(lock, tx);
    expect(await lock.release()).toBe(false);
    expect(failures[0]?.causes[0]?.advice).toContain('Release the lock after the transaction has ended.');
    expect(await b.tryAcquire(key)).toBeNull();
    await tx.query('COMMIT');
    await isFree(b, key);
  });

  it('whose client is killed keeps the lock no longer than its session [G686]', async () => {
    const { b, key, tx } = await guarded();
    const [pid] = (await tx.query<{ pid: number }>('SELECT pg_backend_pid() AS pid')).rows;
    await expire(server, key);
    expect(await b.tryAcquire(key)).toBeNull();
    await server.query('SELECT pg_terminate_backend($1)', [pid!.pid]);
    await isFree(b, key);
  });

  it('guards all locks of a set, and names the one that is no longer held, and whether another owner holds it [G687]', async () => {
    const { a, b, tx } = await stage();
    const keys = [freshKey('z'), freshKey('é'), freshKey('a')];
    const locks = await a.acquireAll(keys, { watchdog: false });
    expect(guardStatement(locks).values.filter((value) => keys.includes(String(value)))).toEqual(locks.keys);
    await tx.query('BEGIN');
    await guard(locks, tx);
    for (const key of keys) await expire(server, key);
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
    const { a, b, tx } = await stage();
    const keys = ['\0', '\\', "'; DROP TABLE note --", '$1 ? :name'].map((text) => `${freshKey()}${text}`);
    const locks = await a.acquireAll(keys);
    await tx.query('BEGIN');
    await guard(locks, tx);
    for (const key of keys) await expect(b.forceRelease(key)).rejects.toThrow('a transaction that guards the lock');
    await tx.query('COMMIT');
    expect(await locks.release()).toBe(true);
  });

  it('that began to read before the lock was granted has to begin again, since it may have read old data [G689]', async () => {
    const { a, key, lock: before, tx } = await stage();
    await before.release();
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

/** What may guard: the lock that the call was granted, or a handle of the same lease inside. */
const HANDLES: [by: string, work: (locks: LockService, lock: Lock, tx: pg.Client) => Promise<void>][] = [
  ['its holder', (_, lock, tx) => guard(lock, tx)],
  ['a nested call', (locks, { key }, tx) => locks.withLock(key, (nested) => guard(nested, tx))],
];

describe('a lock that others of the process wait for', () => {
  /**
   * Lets two calls of a service wait for a lock that another one holds, then hands it to the first of them, for both.
   */
  async function twoInLine(work: (locks: LockService, lock: Lock) => Promise<void>) {
    const [a, b] = [await locksOn(server, { cohortMs: 60_000 }), await locksOn(server)]; // also on a busy machine
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
    const turns = async () => Number((await rowOf(server, key))!.waiters[0]?.split(' ')[1]);
    await until(async () => (await turns()) >= 2, { what: 'both calls wait in the queue' });
    await before.release();
    await begun.opened;
    return { key, a, first, second, end, ownerOfFirst: () => owner };
  }

  /** Lets a transaction read while the first call holds the lock, then passes the lock on to the second call. */
  async function readBeforePassedOn(level: string) {
    const { first, second, end, ownerOfFirst } = await twoInLine(async () => {});
    const tx = await connectTo(server);
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
      // Repeated, as an application does: a late statement makes the transaction look older than it is.
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

  it('is guarded by a transaction at READ COMMITTED, which always reads new data, whenever it began', async () => {
    const { lock, tx } = await readBeforePassedOn('READ COMMITTED');
    await guard(lock, tx);
    await tx.query('COMMIT');
    expect(await lock.release()).toBe(true);
  });

  it.each(HANDLES)(
    'is not passed on to the next of them by a release that comes before the commit, if %s guards it [G690]',
    async (_, work) => {
      const tx = await connectTo(server);
      await tx.query('BEGIN');
      const { a, key, first, second, end, ownerOfFirst } = await twoInLine((locks, lock) => work(locks, lock, tx));
      let isGranted = false;
      void second.then(() => (isGranted = true));
      const failures = failuresOf(a);
      end.open();
      await first;
      await until(() => failures.length > 0, { what: 'the release was not confirmed' });
      expect(isGranted).toBe(false);
      await expire(server, key);
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

  it('refuses a lock that was released, or is known to be lost, whatever its statement returns [G691]', async () => {
    const locks = await locksOn(server);
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
    const locks = await locksOn(server);
    const [released, forced, key] = [await locks.acquire(freshKey()), await locks.acquire(freshKey()), freshKey()];
    await released.release();
    await locks.forceRelease(forced.key);
    const tx = await connectTo(server);
    for (const lock of [released, forced]) {
      await tx.query('BEGIN');
      await tx.query('INSERT INTO note VALUES ($1)', [key]);
      await expect(guard(lock, tx)).rejects.toBeInstanceOf(LockLostError);
      expect(await tx.query('COMMIT')).toMatchObject({ command: 'ROLLBACK' });
    }
    expect(await server.query('SELECT FROM note WHERE text = $1', [key])).toEqual([]);
  });

  it('is refused in a nested transaction of TypeORM, whose rollback would end it, and holds in the outermost [G952]', async () => {
    const locks = await locksOn(server);
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

  it('refuses locks of other stores with an explanation [G692]', async () => {
    const redis = await redisServer();
    for (const locks of [await openLocks({ memory: true }), await openLocks({ redis: redis.url })]) {
      const [lock, set] = [await locks.acquire('key'), await locks.acquireAll(['one', 'two'])];
      expect(() => guardStatement(lock)).toThrow(LockOptionsError);
      await expect(guard(lock, neverCalled)).rejects.toThrow(/SqlLockModule.*got "key", which another store keeps/);
      await expect(guard(set, neverCalled)).rejects.toThrow('got "one" and "two", which another store keeps');
      await Promise.all([lock.release(), set.release()]);
    }
  });

  it('refuses to run outside of a transaction, where it would guard nothing [G693]', async () => {
    const locks = await locksOn(server);
    const pool = new pg.Pool({ connectionString: server.url });
    onTestFinished(() => pool.end());
    const lock = await locks.acquire(freshKey());
    await expect(guard(lock, pool)).rejects.toThrow(LockOptionsError);
    await expect(guard(lock, await connectTo(server))).rejects.toThrow('guard() was called outside of a transaction');
    await lock.release();
  });

  it('refuses values that are not locks or cannot run a statement, and passes other errors of the driver on as they are', async () => {
    const locks = await locksOn(server);
    const lock = await locks.acquire(freshKey());
    await expect(guard({ key: 'key' } as Lock, neverCalled)).rejects.toThrow('lock must be a lock, or a set of locks');
    await expect(guard(lock, undefined as never)).rejects.toThrow('transaction must be a function');
    await expect(guard(lock, {} as never)).rejects.toThrow('transaction must be a function');
    const forgetful = guard(lock, (() => undefined) as never);
    await expect(forgetful).rejects.toThrow('statement of a guard must return a promise: got undefined. Roll the');
    await expect(forgetful).rejects.toThrow(LockOptionsError);
    const error = Object.assign(new Error('connection lost'), { code: 'ECONNRESET' });
    await expect(guard(lock, () => Promise.reject(error))).rejects.toBe(error);
    await lock.release();
  });

  it('keeps a lock from being detached, and one that was detached from being adopted', async () => {
    const { a, lock, tx } = await guarded();
    const HOUR = { ttlMs: 3_600_000 };
    await expect(lock.detach(HOUR)).rejects.toMatchObject({
      code: 'LOCK_OPTIONS',
      message: expect.stringContaining('guard was called for it') as string,
    });
    expect(lock.isHeld).toBe(true);
    await tx.query('ROLLBACK');
    const parcel = await (await a.acquire(freshKey())).detach(HOUR);
    await tx.query('BEGIN');
    await tx.query('SELECT 1 FROM resource_lock WHERE resource_lock_key = $1 FOR KEY SHARE', [parcel.key]);
    await expect(a.adopt(parcel)).rejects.toMatchObject({
      code: 'LOCK_UNAVAILABLE',
      message: expect.stringContaining('a transaction that guards the lock is still open') as string,
    });
    await tx.query('ROLLBACK');
    await (await a.adopt(parcel)).release();
  });
});

describeLostUpdates('postgres', async () => ({
  url: server.url,
  query: (text) => server.query(text),
  openLocks: () => locksOn(server),
  ttlMs: 30_000,
  endLease: (key) => expire(server, key),
}));
