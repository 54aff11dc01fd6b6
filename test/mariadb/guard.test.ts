import { createConnection as createCallbackConnection } from 'mysql2';
import type { Connection } from 'mysql2/promise';
import { guard, guardStatement } from 'nest-redis-lock/sql';
import { describe, expect, it, onTestFinished } from 'vitest';
import { type LockEvent, LockLostError, LockOptionsError, type LockService } from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { until } from '../support/until.js';
import { describeLostUpdates } from '../sql/lost-updates.js';
import { connectTo, leaseHasEnded, mariaDb, openAnother } from './server.js';

const server = await mariaDb();
await server.query('CREATE TABLE note (text varchar(255)) ENGINE = InnoDB');

/** A connection of the application, in a transaction. */
async function begun(level = 'REPEATABLE READ'): Promise<Connection> {
  const tx = await connectTo(server);
  await tx.query(`SET SESSION TRANSACTION ISOLATION LEVEL ${level}`);
  await tx.beginTransaction();
  return tx;
}

/** Two processes; the first has a lock whose lease nobody extends. */
async function stage(ttlMs = 600_000) {
  const [a, b] = [await openAnother(), await openAnother()];
  const lock = await a.acquire(freshKey(), { watchdog: false, ttlMs });
  return { a, b, key: lock.key, lock };
}

/** The same, with an open transaction that guards the lock. */
async function guarded({ ttlMs = 600_000, level = 'REPEATABLE READ' } = {}) {
  const staged = await stage(ttlMs);
  const tx = await begun(level);
  await guard(staged.lock, tx);
  return { ...staged, tx };
}

/** Waits until another process can take the lock. */
const isFree = (locks: LockService, key: string) =>
  until(async () => (await locks.tryAcquire(key))?.release(), { what: 'the lock is free' });

/**
 * How often the library tries to change locks of the server: three times for one attempt to release a lock whose row is
 * locked.
 */
async function triesOf(): Promise<number> {
  const rows = await server.query("SHOW GLOBAL STATUS LIKE 'Com_update'");
  return Number(rows[0]!.Value);
}

/** Ends the lease in the table, as if its holder had been paused that long. A guard prevents this, too. */
async function endLease(key: string): Promise<void> {
  await server.query(
    'UPDATE resource_lock SET expires_at = DATE_SUB(UTC_TIMESTAMP(6), INTERVAL 1 SECOND) WHERE resource_lock_key = ?',
    [Buffer.from(key)],
  );
}

it('a transaction of a MariaDB that guards a lock keeps everybody else from it after XA PREPARE, too [G1058]', async () => {
  const { b, key, lock } = await stage(2_000);
  const session = await connectTo(server);
  await session.query(`XA START '${key}'`);
  await session.query('INSERT INTO note VALUES (?)', [key]);
  await guard(lock, session);
  await session.query(`XA END '${key}'`);
  await session.query(`XA PREPARE '${key}'`);
  await leaseHasEnded(key);
  expect(await b.tryAcquire(key)).toBeNull();
  await session.query(`XA COMMIT '${key}'`);
  const lockOfB = await b.tryAcquire(key);
  expect(await lockOfB!.release()).toBe(true);
});

describe.each(['READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE'])(
  'a transaction of a MariaDB that guards a lock, %s,',
  (level) => {
    it('keeps everybody else from the lock until it ends, also when the lease ended long before [G777]', async () => {
      const { b, key, tx } = await guarded({ ttlMs: 2_000, level });
      await leaseHasEnded(key);
      expect(await b.tryAcquire(key)).toBeNull();
      await tx.commit();
      const lockOfB = await b.tryAcquire(key);
      expect(await lockOfB!.release()).toBe(true);
    });

    it('fails once somebody else has taken the lock over, although it began to read before [G778]', async () => {
      const { b, key, lock } = await stage();
      const { dialect, text, values } = guardStatement(lock);
      expect(dialect).toBe('mysql');
      const tx = await begun(level);
      await tx.query('SELECT * FROM note');
      await tx.query('INSERT INTO note VALUES (?)', [key]);
      await endLease(key);
      const lockOfB = await b.acquire(key);
      // By its statement alone, even if nobody reads the answer.
      await expect(tx.execute(text, values)).rejects.toMatchObject({ code: 'ER_DATA_OUT_OF_RANGE' });
      const refusal: unknown = await guard(lock, tx).catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(LockLostError);
      expect(refusal).toMatchObject({ key, reason: 'stolen', cause: { code: 'ER_DATA_OUT_OF_RANGE' } });
      await tx.rollback();
      expect(await server.query('SELECT 1 FROM note WHERE text = ?', [key])).toEqual([]);
      expect(await lockOfB.release()).toBe(true);
    });
  },
);

describe('a guard in a MariaDB', () => {
  it('holds up extensions and a release, which is repeated until the transaction has ended', async () => {
    const { a, b, key, lock, tx } = await guarded();
    const events: LockEvent[] = [];
    a.events$.subscribe((event) => events.push(event));
    await expect(lock.extend(60_000)).rejects.toThrow('a transaction that guards the lock is still open');
    expect(await lock.release()).toBe(false);
    const [failed] = events.filter((event) => event.type === 'release-failed');
    expect(failed?.causes[0]?.advice).toContain('Release the lock after the transaction has ended.');
    expect(await b.tryAcquire(key)).toBeNull();
    await tx.commit();
    await isFree(b, key);
  });

  it('holds up a release by force for as long as a statement may take', async () => {
    const { b: patient, key, lock, tx } = await guarded();
    const hasty = await openAnother({ commandTimeoutMs: 500 });
    await expect(hasty.forceRelease(key)).rejects.toMatchObject({
      code: 'LOCK_UNAVAILABLE',
      message: expect.stringContaining('a transaction that guards the lock is still open') as string,
    });
    expect(await patient.isLocked(key)).toBe(true);
    const before = await triesOf();
    const forced = patient.forceRelease(key);
    await until(async () => (await triesOf()) >= before + 6, { what: 'it has tried more than once' });
    await tx.commit();
    expect(await forced).toBe(true);
    expect(await lock.release()).toBe(false);
  });

  it('holds up no other lock of its process', async () => {
    const { a, lock, tx } = await guarded();
    const keys = Array.from({ length: 20 }, () => freshKey());
    const others = await Promise.all(keys.map((key) => a.acquire(key)));
    const results = await Promise.all([lock, ...others].map((each) => each.release()));
    expect(results).toEqual([false, ...keys.map(() => true)]);
    await tx.commit();
  });

  it('guards all locks of a set, and names the one that is no longer held, and whether another owner holds it [G835]', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const keys = [freshKey('z'), freshKey('é'), freshKey('a')];
    const locks = await a.acquireAll(keys, { watchdog: false });
    const tx = await begun();
    await guard(locks, tx);
    await tx.commit();
    await endLease(keys[1]!);
    const lockOfB = await b.acquire(keys[1]!);
    await tx.beginTransaction();
    await expect(guard(locks, (text, values) => tx.query(text, values))).rejects.toMatchObject({
      name: 'LockLostError',
      key: keys[1],
      reason: 'stolen',
    });
    await tx.rollback();
    await lockOfB.release();
    await tx.beginTransaction();
    await expect(guard(locks, tx)).rejects.toMatchObject({ key: keys[1], reason: 'expired' });
    await tx.rollback();
  });

  it('ends with the session of a client that is gone [G796]', async () => {
    const { b, key, tx } = await guarded({ ttlMs: 2_000 });
    await leaseHasEnded(key);
    expect(await b.tryAcquire(key)).toBeNull();
    tx.destroy();
    await isFree(b, key);
  });

  it('is refused on a connection with callbacks, which returns no promises, and runs on its promise() [G837]', async () => {
    const lock = await (await openAnother()).acquire(freshKey());
    const connection = createCallbackConnection(server.url);
    onTestFinished(() => connection.destroy());
    const refusals = [
      guard(lock, connection as never),
      guard(lock, ((...ask: [string]) => connection.query(...ask)) as never),
    ];
    for (const refusal of await Promise.allSettled(refusals)) {
      const { reason } = refusal as PromiseRejectedResult;
      expect(reason).toBeInstanceOf(LockOptionsError);
      expect(String(reason)).toContain('pass connection.promise()');
    }
    const tx = connection.promise();
    await tx.beginTransaction();
    await guard(lock, tx);
    await tx.commit();
    expect(await lock.release()).toBe(true);
  });

  it('is refused outside of a transaction, where it would guard nothing [G779]', async () => {
    const a = await openAnother();
    const lock = await a.acquire(freshKey());
    const tx = await begun();
    await tx.commit();
    await expect(guard(lock, tx)).rejects.toBeInstanceOf(LockOptionsError);
    await expect(guard(lock, tx)).rejects.toThrow('guard() was called outside of a transaction');
    await lock.release();
  });
});

describeLostUpdates('mysql', async () => ({
  url: server.url,
  query: (text) => server.query(text),
  openLocks: () => openAnother(),
  ttlMs: 1_000, // a guard protects the row from all changes: the lease is short, and expires
  endLease: leaseHasEnded,
}));
