import { createPool } from 'mysql2';
import pg from 'pg';
import type { GuardStatement } from './library.js';

/**
 * Counters in the database of the locks, stored as all writes in order: the last write of each counter has its value.
 */
export function counterTable(numbered: 'bigserial' | 'bigint AUTO_INCREMENT'): string {
  return `CREATE TABLE counter_write (number ${numbered} PRIMARY KEY, name varchar(255) NOT NULL, turn varchar(255) NOT NULL, base bigint NOT NULL)`;
}

export const COUNTER_WRITES = 'SELECT name, turn, base FROM counter_write ORDER BY number';
const VALUE = 'SELECT base + 1 AS value FROM counter_write WHERE name = ? ORDER BY number DESC LIMIT 1';
const WRITE = 'INSERT INTO counter_write (name, turn, base) VALUES (?, ?, ?)';

/** How long to wait for an answer, in milliseconds. */
const LIMIT_MS = 1_000;

/** A connection that a pool lends. */
interface Connection {
  /** @returns the rows */
  query(text: string, values?: readonly unknown[]): Promise<Record<string, unknown>[]>;
  release(isBroken?: boolean): void;
}

type Connect = () => Promise<Connection>;

export function inPostgres(connectionString: string): Connect {
  const limits = { connectionTimeoutMillis: LIMIT_MS, query_timeout: LIMIT_MS, statement_timeout: LIMIT_MS };
  const pool = new pg.Pool({ connectionString, max: 4, ...limits });
  pool.on('error', () => {}).on('connect', (client) => client.on('error', () => {}));
  return async () => {
    const client = await pool.connect();
    return {
      async query(text, values = []) {
        let count = 0;
        const { rows } = await client.query(
          text.replaceAll('?', () => `$${++count}`),
          [...values],
        );
        return rows as Record<string, unknown>[];
      },
      release: (isBroken) => client.release(isBroken),
    };
  };
}

export function inMariaDb(uri: string): Connect {
  const pool = createPool({ uri, connectionLimit: 4, connectTimeout: LIMIT_MS });
  pool.on('connection', (connection) => {
    connection.on('error', () => {});
    connection.query(`SET SESSION max_statement_time = ${LIMIT_MS / 1_000}, innodb_lock_wait_timeout = 1`, () => {});
  });
  return async () => {
    const connection = await pool.promise().getConnection();
    return {
      query: async (sql, values = []) => {
        const [answer] = await connection.query({ sql, values: [...values], timeout: LIMIT_MS });
        return Array.isArray(answer) ? (answer as Record<string, unknown>[]) : [];
      },
      release: (isBroken) => (isBroken ? connection.destroy() : connection.release()),
    };
  };
}

/** Increments counters in transactions that guard their locks, without any other check: they have no tokens. */
export class Counters {
  constructor(private readonly connect: Connect) {}

  /** @returns undefined if it cannot be read now */
  async read(key: string): Promise<number | undefined> {
    return this.#with(async (connection) => {
      const [row] = await connection.query(VALUE, [key]);
      return Number(row?.value ?? 0);
    });
  }

  /** Writes base + 1, if the lock is held and the database answers. */
  async write(guard: GuardStatement, { key, turn, base }: { key: string; turn: string; base: number }): Promise<void> {
    await this.#with(async (connection) => {
      await connection.query('BEGIN');
      await connection.query(guard.text, guard.values);
      await connection.query(WRITE, [key, turn, base]);
      await connection.query('COMMIT');
    });
  }

  /** A connection that failed may have an open transaction, or be dead: it is not used again. */
  async #with<T>(work: (connection: Connection) => Promise<T>): Promise<T | undefined> {
    let connection: Connection | undefined;
    try {
      connection = await this.connect();
      const result = await work(connection);
      connection.release();
      return result;
    } catch {
      connection?.release(true);
      return undefined;
    }
  }
}
