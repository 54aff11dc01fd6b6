import 'reflect-metadata';
import { MikroORM } from '@mikro-orm/core';
import type { MariaDbDriver } from '@mikro-orm/mariadb';
import type { PostgreSqlDriver } from '@mikro-orm/postgresql';
import knex from 'knex';
import { guard, type Transaction, type TransactionQuery } from 'nest-redis-lock/sql';
import { DataSource } from 'typeorm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Lock, LockLostError, type LockService } from '../../lib/index.js';
import { freshKey } from '../support/claims.js';

/** Runs work in a transaction, which is rolled back if that throws. Its statements have no placeholders: each driver has others. */
export type InTransaction = (
  work: (run: (text: string) => PromiseLike<unknown>, guarding: Transaction | TransactionQuery) => Promise<void>,
) => Promise<void>;

/** A driver as an application uses it. */
export interface Driver {
  readonly inTransaction: InTransaction;
  close(): Promise<unknown>;
}

export type NamedDriver = [name: string, open: (url: string) => Promise<Driver>];

/** A database in which work outlives its lease. */
export interface Database {
  readonly url: string;
  query(text: string): Promise<Record<string, unknown>[]>;
  /** A service of another process, which closes with the test. */
  openLocks(): Promise<LockService>;
  /** The lease of the work, in milliseconds. */
  readonly ttlMs: number;
  /** Waits until the lease has ended, or ends it, also while a transaction guards the lock. */
  endLease(key: string): Promise<void>;
}

/** The placeholders of PostgreSQL, as Knex and MikroORM want them. */
const questionMarks = (text: string): string => text.replaceAll(/\$\d+/g, '?');

export function ofKnex(client: 'pg' | 'mysql2'): NamedDriver {
  return [
    'Knex',
    async (url) => {
      const db = knex({ client, connection: url });
      const inTransaction: InTransaction = (work) =>
        db.transaction((trx) =>
          work(
            (text) => trx.raw(text),
            (text, values) => trx.raw(questionMarks(text), values),
          ),
        );
      return { inTransaction, close: () => db.destroy() };
    },
  ];
}

export function ofTypeOrm(type: 'postgres' | 'mariadb'): NamedDriver {
  return [
    'TypeORM',
    async (url) => {
      const db = await new DataSource({ type, url }).initialize();
      const inTransaction: InTransaction = (work) => db.transaction((tx) => work((text) => tx.query(text), tx));
      return { inTransaction, close: () => db.destroy() };
    },
  ];
}

export function ofMikroOrm(driver: typeof PostgreSqlDriver | typeof MariaDbDriver): NamedDriver {
  return [
    'MikroORM',
    async (url) => {
      const options = { clientUrl: url, entities: [], discovery: { warnWhenNoEntities: false } };
      const orm = await MikroORM.init<PostgreSqlDriver | MariaDbDriver>({ driver, ...options });
      const inTransaction: InTransaction = (work) =>
        orm.em.fork().transactional((em) =>
          work(
            (text) => em.execute(text),
            (text, values) => em.execute(questionMarks(text), values),
          ),
        );
      return { inTransaction, close: () => orm.close() };
    },
  ];
}

type When = 'never' | 'first' | 'last';

/**
 * Counts the updates that are lost when work is paused in its transaction until its lease has ended, and another one does the same.
 * @param name of the database @param start called once
 */
export function describeLostUpdates(
  name: string,
  start: () => Promise<Database>,
  drivers: readonly NamedDriver[],
  rounds: number,
): void {
  describe.each(drivers)(`work in ${name} by %s that outlives its lease`, (_, open) => {
    let database: Database;
    let driver: Driver;

    beforeAll(async () => {
      database = await start();
      await database.query('CREATE TABLE IF NOT EXISTS account (id varchar(100) PRIMARY KEY, n int NOT NULL)');
      driver = await open(database.url);
    });
    afterAll(() => driver.close());

    const read = async (id: string): Promise<number> => {
      const [row] = await database.query(`SELECT n FROM account WHERE id = '${id}'`);
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
      for (let round = 0; round < rounds; round++) {
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
      expect(await race('never')).toEqual({ commits: 2 * rounds, lost: 0, refused: 0, lostUpdates: rounds });
    });

    it.each([
      ['first', { commits: rounds, lost: 0, refused: rounds, lostUpdates: 0 }],
      ['last', { commits: rounds, lost: rounds, refused: 0, lostUpdates: 0 }],
    ] as const)('loses no update when it is guarded, %s in its transaction [G697]', async (when, expected) => {
      expect(await race(when)).toEqual(expected);
    });
  });
}
