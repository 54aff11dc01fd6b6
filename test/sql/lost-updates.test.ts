import 'reflect-metadata';
import { defineConfig, MikroORM } from '@mikro-orm/postgresql';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import knex, { type Knex } from 'knex';
import { guard, type Transaction, type TransactionQuery } from 'nest-redis-lock/sql';
import pg from 'pg';
import { DataSource } from 'typeorm';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { composeSqlLocks } from '../../lib/compose/open-sql.js';
import { LockLostError } from '../../lib/api/errors.js';
import type { Lock } from '../../lib/api/lock.js';
import type { LockService } from '../../lib/core/service/lock.service.js';
import { freshKey } from '../support/claims.js';
import { PostgresServer } from '../support/postgres-server.js';

let server: PostgresServer;
let a: LockService;
let b: LockService;

beforeAll(async () => {
  server = await PostgresServer.start();
  await server.query('CREATE TABLE account (id text PRIMARY KEY, n int NOT NULL)');
  const options = { postgres: server.url, commandTimeoutMs: 20_000, createTable: true, shutdownTimeoutMs: 0 };
  ({ service: a } = await composeSqlLocks(options).open());
  ({ service: b } = await composeSqlLocks(options).open());
});
afterAll(async () => {
  await a.onApplicationShutdown();
  await b.onApplicationShutdown();
  await server.stop();
});

/** Runs work in a transaction, which is rolled back if that throws. Its statements have no placeholders: each driver has others. */
type InTransaction = (
  work: (run: (text: string) => PromiseLike<unknown>, guarding: Transaction | TransactionQuery) => Promise<void>,
) => Promise<void>;

/** A driver as an application uses it. */
interface Driver {
  readonly inTransaction: InTransaction;
  close(): Promise<unknown>;
}

/** `$1`, as Knex and MikroORM want it. */
const questionMarks = (text: string): string => text.replaceAll(/\$\d+/g, '?');

const DRIVERS: [name: string, open: (url: string) => Promise<Driver>][] = [
  [
    'pg',
    async (url) => {
      const pool = new pg.Pool({ connectionString: url });
      const inTransaction: InTransaction = async (work) => {
        const client = await pool.connect();
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
      };
      return { inTransaction, close: () => pool.end() };
    },
  ],
  [
    'Knex',
    async (url) => {
      const db: Knex = knex({ client: 'pg', connection: url });
      const inTransaction: InTransaction = (work) =>
        db.transaction((trx) =>
          work(
            (text) => trx.raw(text),
            (text, values) => trx.raw(questionMarks(text), values),
          ),
        );
      return { inTransaction, close: () => db.destroy() };
    },
  ],
  [
    'TypeORM',
    async (url) => {
      const db = await new DataSource({ type: 'postgres', url }).initialize();
      const inTransaction: InTransaction = (work) => db.transaction((tx) => work((text) => tx.query(text), tx));
      return { inTransaction, close: () => db.destroy() };
    },
  ],
  [
    'Drizzle',
    async (url) => {
      const pool = new pg.Pool({ connectionString: url });
      const db = drizzle(pool);
      const inTransaction: InTransaction = (work) =>
        db.transaction((tx) =>
          work(
            (text) => tx.execute(text),
            (text, values) => tx.execute(sql(text.split(/\$\d+/) as unknown as TemplateStringsArray, ...values)),
          ),
        );
      return { inTransaction, close: () => pool.end() };
    },
  ],
  [
    'MikroORM',
    async (url) => {
      const options = { clientUrl: url, entities: [], discovery: { warnWhenNoEntities: false } };
      const orm = await MikroORM.init(defineConfig(options));
      const inTransaction: InTransaction = (work) =>
        orm.em.fork().transactional((em) =>
          work(
            (text) => em.execute(text),
            (text, values) => em.execute(questionMarks(text), values),
          ),
        );
      return { inTransaction, close: () => orm.close() };
    },
  ],
];

type When = 'never' | 'first' | 'last';

const ROUNDS = 5;

describe.each(DRIVERS)('work by %s that outlives its lease', (_, open) => {
  let driver: Driver;

  beforeAll(async () => {
    driver = await open(server.url);
  });
  afterAll(() => driver.close());

  const read = async (id: string): Promise<number> => {
    const [row] = await server.query('SELECT n FROM account WHERE id = $1', [id]);
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

  /** The holder is paused in each of its transactions, its lease ends, and another one does the same work. */
  async function race(when: When) {
    const key = freshKey();
    await server.query('INSERT INTO account VALUES ($1, 0)', [key]);
    let [commits, lost, refused] = [0, 0, 0];
    const another = async (): Promise<void> => {
      const end =
        "UPDATE resource_lock SET expires_at = clock_timestamp() - interval '1 s' WHERE resource_lock_key = $1";
      await server.query(end, [key]);
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
      const lock = await a.acquire(key, { watchdog: false, waitMs: 60_000 });
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
  ] as const)('loses no update when it is guarded, %s in its transaction [G697]', async (when, expected) => {
    expect(await race(when)).toEqual(expected);
  });
});
