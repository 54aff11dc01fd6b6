import pg from 'pg';
import type { GuardStatement } from './library.js';

/** The counters that stand in the database of the locks, with all that was written, in the order in which it was. */
export const COUNTER_TABLES = `
CREATE TABLE counter (key text PRIMARY KEY, value bigint NOT NULL);
CREATE TABLE counter_write (number bigserial PRIMARY KEY, key text NOT NULL, turn text NOT NULL, base bigint NOT NULL)`;

const COUNT = `INSERT INTO counter VALUES ($1, $2) ON CONFLICT (key) DO UPDATE SET value = $2`;
/** An answer that does not come in this time is not waited for, in milliseconds. */
const LIMIT_MS = 1_000;

/** Increments counters in transactions that guard their locks, and looks at nothing else: they have no tokens. */
export class Counters {
  readonly #pool: pg.Pool;

  constructor(connectionString: string) {
    const limits = { connectionTimeoutMillis: LIMIT_MS, query_timeout: LIMIT_MS, statement_timeout: LIMIT_MS };
    this.#pool = new pg.Pool({ connectionString, max: 4, ...limits });
    this.#pool.on('error', () => {}).on('connect', (client) => client.on('error', () => {}));
  }

  /** @returns undefined when it cannot be read now */
  async read(key: string): Promise<number | undefined> {
    return this.#with(async (client) => {
      const { rows } = await client.query<{ value: string }>('SELECT value FROM counter WHERE key = $1', [key]);
      return Number(rows[0]?.value ?? 0);
    });
  }

  /** Writes base + 1, if the lock is held and the database answers. */
  async write(
    { text, values }: GuardStatement,
    { key, turn, base }: { key: string; turn: string; base: number },
  ): Promise<void> {
    await this.#with(async (client) => {
      await client.query('BEGIN');
      await client.query(text, [...values]);
      await client.query(COUNT, [key, base + 1]);
      await client.query('INSERT INTO counter_write (key, turn, base) VALUES ($1, $2, $3)', [key, turn, base]);
      await client.query('COMMIT');
    });
  }

  /** A connection that failed may have a transaction open, or be dead: it is not used again. */
  async #with<T>(work: (client: pg.PoolClient) => Promise<T>): Promise<T | undefined> {
    let client: pg.PoolClient | undefined;
    try {
      client = await this.#pool.connect();
      const result = await work(client);
      client.release();
      return result;
    } catch {
      client?.release(true);
      return undefined;
    }
  }
}
