import 'reflect-metadata';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/mysql2';
import knex from 'knex';
import { createPool } from 'mysql2/promise';
import { guard, type Transaction, type TransactionQuery } from 'nest-redis-lock/sql';
import { DataSource } from 'typeorm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { LockLostError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import { freshKey } from '../support/claims.js';
import { until } from '../support/until.js';
import { mariaDb, openAnother } from './server.js';

beforeAll(async () => {
  await (await mariaDb()).query('CREATE TABLE account (id varchar(100) PRIMARY KEY, n int NOT NULL) ENGINE = InnoDB');
});

/** Runs work in a transaction, which is rolled back if that throws. */
type InTransaction = (
  work: (run: (text: string) => PromiseLike<unknown>, guarding: Transaction | TransactionQuery) => Promise<void>,
) => Promise<void>;

/** A driver as an application uses it. */
interface Driver {
  readonly inTransaction: InTransaction;
  close(): Promise<unknown>;
}

const DRIVERS: [name: string, open: (url: string) => Promise<Driver>][] = [
  [
    'mysql2',
    async (url) => {
      const pool = createPool(url);
      const inTransaction: InTransaction = async (work) => {
        const tx = await pool.getConnection();
        try {
          await tx.beginTransaction();
          await work((text) => tx.query(text), tx);
          await tx.commit();
        } catch (error) {
          await tx.rollback();
          throw error;
        } finally {
          tx.release();
        }
      };
      return { inTransaction, close: () => pool.end() };
    },
  ],
  [
    'Knex',
    async (url) => {
      const db = knex({ client: 'mysql2', connection: url });
      const inTransaction: InTransaction = (work) =>
        db.transaction((trx) =>
          work(
            (text) => trx.raw(text),
            (text, values) => trx.raw(text, values),
          ),
        );
      return { inTransaction, close: () => db.destroy() };
    },
  ],
  [
    'TypeORM',
    async (url) => {
      const db = await new DataSource({ type: 'mariadb', url }).initialize();
      const inTransaction: InTransaction = (work) => db.transaction((tx) => work((text) => tx.query(text), tx));
      return { inTransaction, close: () => db.destroy() };
    },
  ],
  [
    'Drizzle',
    async (url) => {
      const pool = createPool(url);
      const db = drizzle(pool);
      const inTransaction: InTransaction = (work) =>
        db.transaction((tx) =>
          work(
            (text) => tx.execute(text),
            (text, values) => tx.execute(sql(text.split('?') as unknown as TemplateStringsArray, ...values)),
          ),
        );
      return { inTransaction, close: () => pool.end() };
    },
  ],
];

type When = 'never' | 'first' | 'last';

const ROUNDS = 2;

describe.each(DRIVERS)('work in a MariaDB by %s that outlives its lease', (_, open) => {
  let driver: Driver;

  beforeAll(async () => {
    driver = await open((await mariaDb()).url);
  });
  afterAll(() => driver.close());

  const read = async (id: string): Promise<number> => {
    const [row] = await (await mariaDb()).query('SELECT n FROM account WHERE id = ?', [id]);
    return Number(row!.n);
  };

  /** Adds one, as an application does that reads, computes and writes. @param meanwhile between the two */
  function addOne(lock: Lock, when: When, meanwhile?: () => Promise<void>): Promise<void> {
    return driver.inTransaction(async (run, guarding) => {
      if (when === 'first') await guard(lock, guarding);
      const n = await read(lock.key);
      await meanwhile?.();
      await run(`UPDATE account SET n = ${n + 1} WHERE id = '${lock.key}'`);
      if (when === 'last') await guard(lock, guarding);
    });
  }

  /** The holder is paused in each of its transactions until its lease has ended, and another one does the same work. */
  async function race(when: When) {
    const [a, b, server] = [await openAnother(), await openAnother(), await mariaDb()];
    const key = freshKey();
    await server.query('INSERT INTO account VALUES (?, 0)', [key]);
    let [commits, lost, refused] = [0, 0, 0];
    const another = async (): Promise<void> => {
      const over = 'SELECT 1 FROM resource_lock WHERE resource_lock_key = ? AND expires_at <= UTC_TIMESTAMP(6)';
      await until(async () => (await server.query(over, [Buffer.from(key)])).length === 1, {
        what: 'the lease has ended',
      });
      const lock = await b.tryAcquire(key);
      if (!lock) {
        refused++;
        return;
      }
      await addOne(lock, when);
      commits++;
      await lock.release();
    };
    for (let round = 0; round < ROUNDS; round++) {
      const lock = await a.acquire(key, { watchdog: false, ttlMs: 1_000, waitMs: 60_000 });
      await addOne(lock, when, another).then(
        () => commits++,
        (error: unknown) => {
          if (!(error instanceof LockLostError)) throw error;
          lost++;
        },
      );
      await lock.release();
    }
    return { commits, lost, refused, lostUpdates: commits - (await read(key)) };
  }

  it('loses an update each time without a guard', async () => {
    expect(await race('never')).toEqual({ commits: 2 * ROUNDS, lost: 0, refused: 0, lostUpdates: ROUNDS });
  });

  it.each([
    ['first', { commits: ROUNDS, lost: 0, refused: ROUNDS, lostUpdates: 0 }],
    ['last', { commits: ROUNDS, lost: ROUNDS, refused: 0, lostUpdates: 0 }],
  ] as const)('loses no update when it is guarded, %s in its transaction [G780]', async (when, expected) => {
    expect(await race(when)).toEqual(expected);
  });
});
