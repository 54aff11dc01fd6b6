import { createPool } from 'mysql2';
import pg from 'pg';
import type { GuardStatement } from './library.js';

/** The counters that stand in the database of the locks, with all that was written, in the order in which it was. */
export function counterTables(numbered: 'bigserial' | 'bigint AUTO_INCREMENT'): string[] {
  return [
    'CREATE TABLE counter (name varchar(255) PRIMARY KEY, value bigint NOT NULL)',
    `CREATE TABLE counter_write (number ${numbered} PRIMARY KEY, name varchar(255) NOT NULL, turn varchar(255) NOT NULL, base bigint NOT NULL)`,
  ];
}

/** What was written, in that order. */
export const COUNTER_WRITES = 'SELECT name, turn, base FROM counter_write ORDER BY number';

/** An answer that does not come in this time is not waited for, in milliseconds. */
const LIMIT_MS = 1_000;

/** A connection that is lent by a pool. */
interface Connection {
  /** @returns the rows */
  query(text: string, values?: readonly unknown[]): Promise<Record<string, unknown>[]>;
  release(isBroken?: boolean): void;
}

/** The database of the counters. */
export interface CounterDatabase {
  connect(): Promise<Connection>;
  readonly read: string;
  /** Arguments: the name and the value. */
  readonly count: string;
  /** Arguments: the name, the turn, the base. */
  readonly note: string;
}

export function inPostgres(connectionString: string): CounterDatabase {
  const limits = { connectionTimeoutMillis: LIMIT_MS, query_timeout: LIMIT_MS, statement_timeout: LIMIT_MS };
  const pool = new pg.Pool({ connectionString, max: 4, ...limits });
  pool.on('error', () => {}).on('connect', (client) => client.on('error', () => {}));
  return {
    async connect() {
      const client = await pool.connect();
      return {
        query: async (text, values = []) => (await client.query(text, [...values])).rows as Record<string, unknown>[],
        release: (isBroken) => client.release(isBroken),
      };
    },
    read: 'SELECT value FROM counter WHERE name = $1',
    count: 'INSERT INTO counter VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = excluded.value',
    note: 'INSERT INTO counter_write (name, turn, base) VALUES ($1, $2, $3)',
  };
}

export function inMariaDb(uri: string): CounterDatabase {
  const pool = createPool({ uri, connectionLimit: 4, connectTimeout: LIMIT_MS });
  pool.on('connection', (connection) => {
    connection.on('error', () => {});
    connection.query(`SET SESSION max_statement_time = ${LIMIT_MS / 1_000}, innodb_lock_wait_timeout = 1`, () => {});
  });
  return {
    async connect() {
      const connection = await pool.promise().getConnection();
      return {
        query: async (sql, values = []) => {
          const [answer] = await connection.query({ sql, values: [...values], timeout: LIMIT_MS });
          return Array.isArray(answer) ? (answer as Record<string, unknown>[]) : [];
        },
        release: (isBroken) => (isBroken ? connection.destroy() : connection.release()),
      };
    },
    read: 'SELECT value FROM counter WHERE name = ?',
    count: 'INSERT INTO counter VALUES (?, ?) ON DUPLICATE KEY UPDATE value = VALUES(value)',
    note: 'INSERT INTO counter_write (name, turn, base) VALUES (?, ?, ?)',
  };
}

/** Increments counters in transactions that guard their locks, and looks at nothing else: they have no tokens. */
export class Counters {
  constructor(private readonly database: CounterDatabase) {}

  /** @returns undefined when it cannot be read now */
  async read(key: string): Promise<number | undefined> {
    return this.#with(async (connection) => {
      const [row] = await connection.query(this.database.read, [key]);
      return Number(row?.value ?? 0);
    });
  }

  /** Writes base + 1, if the lock is held and the database answers. */
  async write(
    { text, values }: GuardStatement,
    { key, turn, base }: { key: string; turn: string; base: number },
  ): Promise<void> {
    await this.#with(async (connection) => {
      await connection.query('BEGIN');
      await connection.query(text, values);
      await connection.query(this.database.count, [key, base + 1]);
      await connection.query(this.database.note, [key, turn, base]);
      await connection.query('COMMIT');
    });
  }

  /** A connection that failed may have a transaction open, or be dead: it is not used again. */
  async #with<T>(work: (connection: Connection) => Promise<T>): Promise<T | undefined> {
    let connection: Connection | undefined;
    try {
      connection = await this.database.connect();
      const result = await work(connection);
      connection.release();
      return result;
    } catch {
      connection?.release(true);
      return undefined;
    }
  }
}
