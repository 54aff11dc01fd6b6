import { beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { LockOptionsError, type LockService } from 'nest-redis-lock';
import type { SqlStoreOptions } from 'nest-redis-lock/sql';
import { freshKey } from '../support/claims.js';
import { proxyTo } from '../support/stage.js';
import { until } from '../support/until.js';

const HOUR_MS = 3_600_000;
const TTL_MS = 600_000;

/** A pool of an application. It ends with the test. */
export interface Pool {
  /** For locks. */
  readonly source: unknown;
  /** One of its connections. */
  take(): Promise<{ query(text: string): Promise<unknown>; release(): void }>;
}

/** A database with locks, and what an application has there. Everything that it opens ends with the test. */
export interface HazardDatabase {
  readonly port: number;
  /** The URL, or a URL that leads there through another port. */
  url(port?: number): string;
  /** Runs a statement. */
  run(text: string): Promise<unknown>;
  /** A connection of the driver itself. */
  driverConnection(): Promise<unknown>;
  pool(most: number): Pool;
  /** A lock service of this library. @param source default: the URL */
  locks(source?: unknown, options?: SqlStoreOptions): Promise<LockService>;
  /** The row of a lock of this library. */
  rowOf(key: string): Promise<LockRow | undefined>;
}

export interface LockRow {
  readonly holder: string;
  readonly fence: number;
  readonly isHeld: boolean;
  readonly remainingMs: number;
}

/**
 * Pairs of keys that something considers equal: a checksum of 32 bits, collations, padded text, a number, text that
 * cannot be stored.
 */
const LOOK_ALIKE = [
  ['plumless', 'buckeroo'],
  ['order:1', 'ORDER:1'],
  ['order:1', 'order:1 '],
  ['caf\u00e9', 'cafe\u0301'],
  ['café', 'cafe'],
  ['straße', 'strasse'],
  ['0', 'text'],
  ['a\0b', 'a\\0b'],
  ['a\\b', 'a\\\\b'],
  ['a\0', 'a'],
  ['😀', '😁'],
] as const;

/** The hazards that are the same in each database. */
export function describeHazards(name: string, start: () => Promise<HazardDatabase>): void {
  let database: HazardDatabase;

  describe(`In ${name}`, () => {
    beforeAll(async () => {
      database = await start();
    });

    describe('S1: the clients compute the end of the lease', () => {
      it.each([
        ['ahead', HOUR_MS],
        ['behind', -HOUR_MS],
      ])(
        'this library uses only the clock of the database: there is one holder, even if the clocks of processes are %s [G750]',
        async (_, skewMs) => {
          const key = freshKey();
          const sound = await database.locks();
          const wall = Date.now.bind(Date);
          const clock = vi.spyOn(Date, 'now').mockImplementation(() => wall() + skewMs);
          onTestFinished(() => clock.mockRestore());
          const skewed = await database.locks();

          const first = await sound.acquire(key, { ttlMs: TTL_MS });
          expect(await skewed.tryAcquire(key)).toBeNull();
          expect(await first.release()).toBe(true);
          const second = await skewed.acquire(key, { ttlMs: TTL_MS });
          expect(second.fencingToken).toBeGreaterThan(first.fencingToken);
          expect(await sound.tryAcquire(key)).toBeNull();
          const { remainingMs } = (await database.rowOf(key))!;
          expect(remainingMs).toBeGreaterThan(TTL_MS / 2);
          expect(remainingMs).toBeLessThanOrEqual(TTL_MS);
        },
      );
    });

    describe('S3: the lock is taken in the transaction of its caller', () => {
      it('this library takes locks on connections of its own: a transaction of the work changes nothing, and is not changed [G752]', async () => {
        const pool = database.pool(10);
        const others = await database.locks();
        const [key, taken] = [freshKey(), freshKey()];
        await others.acquire(taken);

        const tx = await pool.take();
        await tx.query('BEGIN');
        const locks = await database.locks(pool.source);
        const lock = await locks.acquire(key, { ttlMs: TTL_MS });
        expect(await locks.tryAcquire(taken)).toBeNull();
        await tx.query('SELECT 1');
        await tx.query('ROLLBACK');
        tx.release();
        expect((await database.rowOf(key))!).toMatchObject({ holder: lock.owner, isHeld: true });
        expect(await others.tryAcquire(key)).toBeNull();
        expect(await lock.release()).toBe(true);
      });

      it('this library refuses a connection of the application, in which a transaction may be open [G753]', async () => {
        const connection = await database.driverConnection();
        const opening = (async () => database.locks(connection))();
        await expect(opening).rejects.toThrow(LockOptionsError);
        await expect(opening).rejects.toThrow(/would end with its rollback/);
      });
    });

    describe('S7: two keys are one lock', () => {
      it('this library keeps all of these keys apart, and lists them as they are [G756]', async () => {
        const locks = await database.locks(undefined, { table: 'look_alike' });
        const keys = [...new Set(LOOK_ALIKE.flat())];
        const held = [];
        for (const key of keys) held.push(await locks.acquire(key, { ttlMs: TTL_MS, waitMs: 0 }));
        expect((await locks.list()).locks.map(({ key }) => key).sort()).toEqual([...keys].sort());
        for (const lock of held.splice(0, keys.length / 2)) expect(await lock.release()).toBe(true);
        for (const lock of held) expect(await locks.tryAcquire(lock.key)).toBeNull();
      });
    });

    describe('S8: all connections of the pool are in use by work that waits to give its lock back', () => {
      it('this library has connections of its own: locks are taken, waited for and given back although the pool has none left [G755]', async () => {
        const pool = database.pool(2);
        const [locks, others] = [await database.locks(pool.source), await database.locks()];
        const transactions = [await pool.take(), await pool.take()];
        const key = freshKey();
        const first = await locks.acquire(key, { ttlMs: TTL_MS });
        const waiting = others.acquire(key, { waitMs: TTL_MS });
        await until(() => others.stats().some((each) => each.waiting > 0), { what: 'another one waits' });
        expect(await first.release()).toBe(true);
        const second = await waiting;
        const again = locks.acquire(key, { waitMs: TTL_MS });
        expect(await second.release()).toBe(true);
        expect(await (await again).release()).toBe(true);
        for (const tx of transactions) tx.release();
      });
    });

    describe('S11: the statement ran, and its reply is lost', () => {
      it('this library knows its own value when it asks again: it holds the lock, and leaves nothing behind [G764]', async () => {
        const proxy = await proxyTo(database);
        const locks = await database.locks(database.url(proxy.port));
        const key = freshKey();
        await locks.withLock(key, () => {});
        proxy.dropReplies();
        const acquiring = locks.acquire(key, { ttlMs: TTL_MS, waitMs: 0 });
        await until(async () => (await database.rowOf(key))?.isHeld, { what: 'the statement has run' });
        proxy.passReplies();
        const lock = await acquiring;
        const row = (await database.rowOf(key))!;
        expect(row).toMatchObject({ holder: lock.owner, fence: lock.fencingToken, isHeld: true });
        expect(await lock.release()).toBe(true);
        expect((await database.rowOf(key))!.isHeld).toBe(false);
      });
    });

    describe('S15: the rows of the locks are lost', () => {
      it('this library goes on with greater tokens, and reports the loss to the old holder, when the table is truncated [G758]', async () => {
        const table = { table: 'truncated' };
        const [a, b] = [await database.locks(undefined, table), await database.locks(undefined, table)];
        const key = freshKey();
        for (let turn = 0; turn < 20; turn++) await a.withLock(key, () => {});
        const lockOfA = await a.acquire(key, { ttlMs: 3_000 });
        await database.run('TRUNCATE TABLE truncated');
        const lockOfB = await b.acquire(key, { ttlMs: TTL_MS, waitMs: 0 });
        expect(lockOfB.fencingToken).toBeGreaterThan(lockOfA.fencingToken);
        await until(() => lockOfA.signal.aborted, { what: 'A is notified' });
        expect(await lockOfB.release()).toBe(true);
      });
    });
  });
}
