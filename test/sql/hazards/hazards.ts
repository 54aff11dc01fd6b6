import { beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { LockOptionsError, type LockService } from '../../../lib/index.js';
import type { SqlStoreOptions } from '../../../lib/sql/index.js';
import { FencedStore } from '../../hazards/fenced-store.js';
import { freshKey } from '../../support/claims.js';
import { TcpProxy } from '../../support/tcp-proxy.js';
import { until } from '../../support/until.js';
import {
  countedLock,
  countedUnlock,
  deleteLocks,
  endedLocks,
  naiveTables,
  shedLock,
  shedLockOrSkip,
  shedUnlock,
  springLock,
  verrouLock,
  type Database,
} from './naive.js';

const MINUTE_MS = 60_000;
const HOUR_MS = 60 * MINUTE_MS;
const TTL_MS = 10 * MINUTE_MS;

/** A pool of an application. It ends with the test. */
export interface Pool extends Database {
  /** For locks. */
  readonly source: unknown;
  /** One of its connections. */
  take(): Promise<Database & { release(): void }>;
}

/** A database with locks, and what an application has there. All that it opens ends with the test. */
export interface HazardDatabase {
  readonly dialect?: 'mysql';
  readonly port: number;
  /** The URL, or one that leads there by another port. */
  url(port?: number): string;
  /** Runs a statement. */
  run(text: string): Promise<unknown>;
  /** @param url default: its own */
  connect(url?: string): Promise<Database>;
  /** A connection of the driver itself. */
  driverConnection(): Promise<unknown>;
  pool(most: number): Pool;
  /** A lock service of this library. @param source default: the URL */
  locks(source?: unknown, options?: SqlStoreOptions): Promise<LockService>;
  /** The row of a lock of this library. */
  rowOf(key: string): Promise<LockRow | undefined>;
  /** Waits until a session waits for a row that another one has. */
  sessionWaits(): Promise<void>;
  /** What it calls the error of a deadlock. */
  readonly deadlock: string;
  /** Gives the keys of ShedLock a column that takes similar keys for one. */
  readonly folding: string;
  /** Gives them one that ignores spaces at the end. */
  readonly padding: string;
}

export interface LockRow {
  readonly holder: string;
  readonly fence: number;
  readonly isHeld: boolean;
  readonly remainingMs: number;
}

/** Pairs of keys that one of these takes for one: a checksum of 32 bits, collations, padded text, a number, what cannot be stored. */
export const LOOK_ALIKE = [
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
      for (const table of naiveTables(database.dialect)) await database.run(table);
    });

    describe('S1: the end of the lease is a time of the clients', () => {
      it.each([
        ["ShedLock's statement", shedLock],
        ["Spring Integration's statements", springLock],
        ["Verrou's statements", verrouLock],
      ])('a naive lock by %s has two holders when the clock of a client is ahead', async (_, lock) => {
        const client = await database.connect();
        const key = freshKey();
        expect(await lock(client, key, 'A', TTL_MS)).toBe(true);
        expect(await lock(client, key, 'B', TTL_MS)).toBe(false);
        const ahead = { now: () => Date.now() + HOUR_MS };
        expect(await lock(client, key, 'B', TTL_MS, ahead)).toBe(true);
      });

      it.each([
        ['ahead', HOUR_MS],
        ['behind', -HOUR_MS],
      ])(
        'this library asks no clock but that of the database: there is one holder, also of those whose clocks are %s [G750]',
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

    describe('S2: the end of the lease is a local time, and clocks are changed to summer time or back', () => {
      const at = (time: string) => ({ now: () => Date.parse(time), zone: 'Europe/Berlin' });

      it('a naive lock by local times has two holders when the clocks go forward', async () => {
        const client = await database.connect();
        expect(await springLock(client, 'in March', 'A', TTL_MS, at('2026-03-29T00:55Z'))).toBe(true);
        expect(await springLock(client, 'in March', 'B', TTL_MS, at('2026-03-29T00:59Z'))).toBe(false);
        expect(await springLock(client, 'in March', 'B', TTL_MS, at('2026-03-29T01:00Z'))).toBe(true); // after 5 of 10 minutes
      });

      it('a naive lock by local times is held for an hour longer when the clocks go back', async () => {
        const client = await database.connect();
        expect(await springLock(client, 'in October', 'A', TTL_MS, at('2026-10-25T00:55Z'))).toBe(true);
        expect(await springLock(client, 'in October', 'B', TTL_MS, at('2026-10-25T02:04Z'))).toBe(false); // for 69 minutes
      });
    });

    describe('S3: the lock is taken in the transaction of its caller', () => {
      it('a naive lock is free for all once that transaction is rolled back, although the work goes on', async () => {
        const [a, b] = [await database.connect(), await database.connect()];
        const key = freshKey();
        await a.query('BEGIN');
        expect(await shedLock(a, key, 'A', TTL_MS)).toBe(true);
        await a.query('ROLLBACK');
        expect(await shedLock(b, key, 'B', TTL_MS)).toBe(true);
      });

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
      it.each([
        ['whose column has a collation that ignores case', 'folding', LOOK_ALIKE[1]],
        ['whose column ignores spaces at the end', 'padding', LOOK_ALIKE[2]],
      ] as const)('a naive lock %s is refused as a similar key is held', async (_, change, [one, other]) => {
        const client = await database.connect();
        await client.query(database[change]);
        expect(await shedLock(client, one, 'A', TTL_MS)).toBe(true);
        expect(await shedLock(client, other, 'B', TTL_MS)).toBe(false); // nobody holds it
        await client.query('DELETE FROM shedlock');
      });

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
      it('a naive lock on the pool of the work cannot be given back: it is held, and nobody works, until a transaction ends', async () => {
        const [pool, other] = [database.pool(2), await database.connect()];
        const keys = [freshKey(), freshKey()];
        for (const key of keys) expect(await shedLock(pool, key, 'A', TTL_MS)).toBe(true);
        const transactions = [await pool.take(), await pool.take()];
        const releases = Promise.all(keys.map((key) => shedUnlock(pool, key)));
        for (const key of keys) expect(await shedLock(other, key, 'B', TTL_MS)).toBe(false);
        for (const tx of transactions) tx.release();
        expect(await releases).toEqual([true, true]);
      });

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

    describe('S9: several locks are taken at once, by everybody in another order', () => {
      it('a naive lock on each of two rows, in the opposite order, ends one transaction by a deadlock', async () => {
        const [a, b] = [await database.connect(), await database.connect()];
        const [one, other] = [freshKey(), freshKey()];
        for (const client of [a, b]) await client.query('BEGIN');
        await shedLock(a, one, 'A', TTL_MS);
        await shedLock(b, other, 'B', TTL_MS);
        const asking = Promise.allSettled([shedLock(a, other, 'A', TTL_MS)]);
        await database.sessionWaits();
        const outcomes = [...(await Promise.allSettled([shedLock(b, one, 'B', TTL_MS)]))];
        for (const client of [b, a]) await client.query('ROLLBACK').catch(() => {});
        outcomes.push(...(await asking));
        const codes = outcomes.map((each) => each.status === 'rejected' && (each.reason as { code: string }).code);
        expect(codes).toContain(database.deadlock);
      });
    });

    describe('S11: the statement ran, and its reply is lost', () => {
      /** A way to the server that loses what it is told to. */
      async function way(): Promise<{ proxy: TcpProxy; url: string }> {
        const proxy = await TcpProxy.start(database.port);
        onTestFinished(() => proxy.stop());
        return { proxy, url: database.url(proxy.port) };
      }

      it('a naive lock stays for its whole ttl, and nobody holds it', async () => {
        const { proxy, url } = await way();
        const [a, b] = [await database.connect(url), await database.connect()];
        const key = freshKey();
        proxy.dropReplies();
        const locking = expect(verrouLock(a, key, 'A', TTL_MS)).rejects.toThrow();
        const stored = async () => (await b.query('SELECT 1 FROM verrou WHERE name = $1', [key])).rows.length;
        await until(stored, { what: 'the statement has run' });
        proxy.passReplies();
        await locking;
        expect(await verrouLock(b, key, 'B', TTL_MS)).toBe(false);
      });

      it('this library knows its own value when it asks again: it holds the lock, and leaves nothing behind [G764]', async () => {
        const { proxy, url } = await way();
        const locks = await database.locks(url);
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

    describe('S12: a statement that was given up runs late', () => {
      it('a naive release that names no owner gives the lock of the next holder back', async () => {
        const [a, b] = [await database.connect(), await database.connect()];
        const key = freshKey();
        await shedLockOrSkip(a, key, 'A', -1); // its lease is over
        expect(await shedLockOrSkip(b, key, 'B', TTL_MS)).toBe(true);
        expect(await shedUnlock(a, key)).toBe(true);
        expect(await shedLockOrSkip(a, key, 'C', TTL_MS)).toBe(true); // as B does
      });
    });

    describe('S15: the rows of the locks are lost', () => {
      it('a naive lock with a counter in its row refuses the new holder then, and accepts the old one', async () => {
        const client = await database.connect();
        const stock = new FencedStore();
        const key = freshKey();
        for (let turn = 0; turn < 5; turn++) {
          await countedLock(client, key, TTL_MS);
          await countedUnlock(client, key);
        }
        const tokenOfA = (await countedLock(client, key, TTL_MS))!;
        expect(stock.write('as A counted it', tokenOfA)).toBe(true);
        await database.run('TRUNCATE TABLE counted');
        const tokenOfB = (await countedLock(client, key, TTL_MS))!;
        expect(stock.write('as B sold it', tokenOfB)).toBe(false);
        expect(stock.write('as A saw it', tokenOfA)).toBe(true);
      });

      it('this library goes on with greater tokens, and tells the old holder of the loss, when the table is truncated [G758]', async () => {
        const table = { table: 'truncated' };
        const [a, b] = [await database.locks(undefined, table), await database.locks(undefined, table)];
        const stock = new FencedStore();
        const key = freshKey();
        for (let turn = 0; turn < 20; turn++) await a.withLock(key, () => {});
        const lockOfA = await a.acquire(key, { ttlMs: 3_000 });
        expect(stock.write('as A counted it', lockOfA.fencingToken)).toBe(true);
        await database.run('TRUNCATE TABLE truncated');
        const lockOfB = await b.acquire(key, { ttlMs: TTL_MS, waitMs: 0 });
        expect(stock.write('as B sold it', lockOfB.fencingToken)).toBe(true);
        expect(stock.write('as A saw it', lockOfA.fencingToken)).toBe(false);
        await until(() => lockOfA.signal.aborted, { what: 'A is told' });
        expect(await lockOfB.release()).toBe(true);
      });
    });

    describe('S16: the row of a lock is swept while the lock is taken', () => {
      it('a naive sweep in two steps deletes a lock that was taken in between: it has two holders, and a token that was used', async () => {
        const client = await database.connect();
        const key = freshKey();
        await countedLock(client, key, TTL_MS);
        await countedUnlock(client, key);
        const ended = await endedLocks(client);
        const tokenOfA = (await countedLock(client, key, TTL_MS))!;
        await deleteLocks(client, ended);
        expect(await countedLock(client, key, TTL_MS)).toBeLessThan(tokenOfA);
      });
    });
  });
}
