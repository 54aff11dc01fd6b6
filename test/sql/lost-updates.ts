import 'reflect-metadata';
import { MikroORM } from '@mikro-orm/core';
import { MariaDbDriver } from '@mikro-orm/mariadb';
import { PostgreSqlDriver } from '@mikro-orm/postgresql';
import { sql } from 'drizzle-orm';
import { drizzle as onMysql } from 'drizzle-orm/mysql2';
import { drizzle as onPostgres } from 'drizzle-orm/node-postgres';
import knex from 'knex';
import { createPool } from 'mysql2/promise';
import { type Lock, LockLostError, type LockService } from 'nest-redis-lock';
import { guard, type Transaction, type TransactionQuery } from 'nest-redis-lock/sql';
import pg from 'pg';
import { DataSource } from 'typeorm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { freshKey } from '../support/claims.js';

/** The operations of work in a transaction. Its statements have no placeholders, since they differ between drivers. */
type Work = (run: (text: string) => PromiseLike<unknown>, guarding: Transaction | TransactionQuery) => Promise<void>;

/** A driver as an application uses it. */
interface Driver {
  /** Runs work in a transaction, which is rolled back if that throws. */
  inTransaction(work: Work): Promise<unknown>;
  close(): Promise<unknown>;
}

type Dialect = 'postgres' | 'mysql';

/** A database in which work outlives its lease. */
export interface Database {
  readonly url: string;
  query(text: string): Promise<Record<string, unknown>[]>;
  /** A service of another process, which closes with the test. */
  openLocks(): Promise<LockService>;
  /** The lease of the work, in milliseconds. */
  readonly ttlMs: number;
  /** Waits until the lease has ended, or ends it, even while a transaction guards the lock. */
  endLease(key: string): Promise<void>;
}

/** The placeholders of PostgreSQL, in the form of Knex and MikroORM. */
const questionMarks = (text: string): string => text.replaceAll(/\$\d+/g, '?');

/** Both drivers use the same words for it. */
async function ofPool(dialect: Dialect, url: string): Promise<Driver> {
  const mysql = () => createPool(url) as unknown as { getConnection(): Promise<pg.PoolClient>; end(): Promise<void> };
  const pool = dialect === 'mysql' ? mysql() : new pg.Pool({ connectionString: url });
  return {
    async inTransaction(work) {
      const client = await ('getConnection' in pool ? pool.getConnection() : pool.connect());
      try {
        await client.query('BEGIN');
        await work((text) => client.query(text), client);
        await client.query('COMMIT');
      } catch (error) {
        await client.query('ROLLBACK');
        throw error;
      } finally {
        client.release();
      }
    },
    close: () => pool.end(),
  };
}

const DRIVERS: [name: string, open: (dialect: Dialect, url: string) => Promise<Driver>][] = [
  ['its own driver', ofPool],
  [
    'Knex',
    async (dialect, url) => {
      const db = knex({ client: dialect === 'mysql' ? 'mysql2' : 'pg', connection: url });
      return {
        inTransaction: (work) =>
          db.transaction((trx) =>
            work(
              (text) => trx.raw(text),
              (text, values) => trx.raw(questionMarks(text), values),
            ),
          ),
        close: () => db.destroy(),
      };
    },
  ],
  [
    'TypeORM',
    async (dialect, url) => {
      const db = await new DataSource({ type: dialect === 'mysql' ? 'mariadb' : 'postgres', url }).initialize();
      return {
        inTransaction: (work) => db.transaction((tx) => work((text) => tx.query(text), tx)),
        close: () => db.destroy(),
      };
    },
  ],
  [
    'Drizzle',
    async (dialect, url) => {
      const pool = dialect === 'mysql' ? createPool(url) : new pg.Pool({ connectionString: url });
      const db = dialect === 'mysql' ? onMysql(pool as never) : onPostgres(pool as pg.Pool);
      const parts = (text: string) => text.split(/\$\d+|\?/) as unknown as TemplateStringsArray;
      return {
        inTransaction: (work) =>
          (db as ReturnType<typeof onPostgres>).transaction((tx) =>
            work(
              (text) => tx.execute(text),
              (text, values) => tx.execute(sql(parts(text), ...values)),
            ),
          ),
        close: () => pool.end(),
      };
    },
  ],
  [
    'MikroORM',
    async (dialect, url) => {
      const options = { clientUrl: url, entities: [], discovery: { warnWhenNoEntities: false } };
      const driver = dialect === 'mysql' ? MariaDbDriver : PostgreSqlDriver;
      const orm = await MikroORM.init<PostgreSqlDriver | MariaDbDriver>({ driver, ...options });
      return {
        inTransaction: (work) =>
          orm.em.fork().transactional((em) =>
            work(
              (text) => em.execute(text),
              (text, values) => em.execute(questionMarks(text), values),
            ),
          ),
        close: () => orm.close(),
      };
    },
  ],
];

type When = 'never' | 'first' | 'last';

/**
 * Counts the updates that are lost when work is paused in its transaction until its lease has ended, and another
 * process does the same.
 * @param start called once for each driver
 */
export function describeLostUpdates(dialect: Dialect, start: () => Promise<Database>): void {
  describe.each(DRIVERS)(`work in ${dialect} by %s that outlives its lease`, (_, open) => {
    let database: Database;
    let driver: Driver;

    beforeAll(async () => {
      database = await start();
      await database.query('CREATE TABLE IF NOT EXISTS account (id varchar(100) PRIMARY KEY, n int NOT NULL)');
      driver = await open(dialect, database.url);
    });
    afterAll(() => driver.close());

    const read = async (id: string): Promise<number> => {
      const [row] = await database.query(`SELECT n FROM account WHERE id = '${id}'`);
      return Number(row!.n);
    };

    /**
     * Adds one, as an application that reads, computes and writes.
     * @param meanwhile between the two
     */
    function addOne(lock: Lock, when: When, meanwhile?: () => Promise<void>): Promise<unknown> {
      return driver.inTransaction(async (run, guarding) => {
        if (when === 'first') await guard(lock, guarding);
        const n = await read(lock.key);
        await meanwhile?.();
        await run(`UPDATE account SET n = ${n + 1} WHERE id = '${lock.key}'`);
        if (when === 'last') await guard(lock, guarding);
      });
    }

    async function race(when: When) {
      const [a, b] = [await database.openLocks(), await database.openLocks()];
      const key = freshKey();
      await database.query(`INSERT INTO account VALUES ('${key}', 0)`);
      let [commits, lost, refused] = [0, 0, 0];
      const another = async (): Promise<void> => {
        await database.endLease(key);
        const lock = await b.tryAcquire(key);
        if (!lock) {
          refused++;
          return;
        }
        await addOne(lock, when);
        commits++;
        await lock.release();
      };
      for (let round = 0; round < 2; round++) {
        const lock = await a.acquire(key, { watchdog: false, ttlMs: database.ttlMs, waitMs: 60_000 });
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
      expect(await race('never')).toEqual({ commits: 4, lost: 0, refused: 0, lostUpdates: 2 });
    });

    it.each([
      ['first', { commits: 2, lost: 0, refused: 2, lostUpdates: 0 }],
      ['last', { commits: 2, lost: 2, refused: 0, lostUpdates: 0 }],
    ] as const)('loses no update when it is guarded, %s in its transaction [G697]', async (when, expected) => {
      expect(await race(when)).toEqual(expected);
    });
  });
}
