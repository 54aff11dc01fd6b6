import { PostgreSqlDriver } from '@mikro-orm/postgresql';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/node-postgres';
import pg from 'pg';
import { afterAll, beforeAll } from 'vitest';
import { openSqlLocks } from '../support/open-locks.js';
import { PostgresServer } from '../support/postgres-server.js';
import {
  describeLostUpdates,
  ofKnex,
  ofMikroOrm,
  ofTypeOrm,
  type InTransaction,
  type NamedDriver,
} from './lost-updates.js';

let server: PostgresServer;
beforeAll(async () => {
  server = await PostgresServer.start();
});
afterAll(() => server.stop());

const ofPg: NamedDriver = [
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
];

const ofDrizzle: NamedDriver = [
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
];

const database = async () => ({
  url: server.url,
  query: (text: string) => server.query(text),
  openLocks: () => openSqlLocks({ postgres: server.url, commandTimeoutMs: 20_000 }),
  ttlMs: 30_000,
  endLease: async (key: string) => {
    const end = "UPDATE resource_lock SET expires_at = clock_timestamp() - interval '1 s' WHERE resource_lock_key = $1";
    await server.query(end, [key]);
  },
});

const drivers = [ofPg, ofKnex('pg'), ofTypeOrm('postgres'), ofDrizzle, ofMikroOrm(PostgreSqlDriver)];
describeLostUpdates('PostgreSQL', database, drivers, 5);
