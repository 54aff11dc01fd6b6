import { MariaDbDriver } from '@mikro-orm/mariadb';
import { sql } from 'drizzle-orm';
import { drizzle } from 'drizzle-orm/mysql2';
import { createPool } from 'mysql2/promise';
import {
  describeLostUpdates,
  ofKnex,
  ofMikroOrm,
  ofTypeOrm,
  type Database,
  type InTransaction,
  type NamedDriver,
} from '../sql/lost-updates.js';
import { leaseHasEnded, mariaDb, openAnother } from './server.js';

const ofMysql2: NamedDriver = [
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
];

const ofDrizzle: NamedDriver = [
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
];

/** A guard keeps the row from all changes: the lease is short, and ends by itself. */
const database = async (): Promise<Database> => {
  const server = await mariaDb();
  const query = (text: string) => server.query(text);
  return { url: server.url, query, openLocks: openAnother, ttlMs: 1_000, endLease: leaseHasEnded };
};

const drivers = [ofMysql2, ofKnex('mysql2'), ofTypeOrm('mariadb'), ofDrizzle, ofMikroOrm(MariaDbDriver)];
describeLostUpdates('a MariaDB', database, drivers, 2);
