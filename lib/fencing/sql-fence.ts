import { checkKey } from '../core/keys/key.js';
import { LockOptionsError } from '../api/errors.js';
import type { FenceStore } from './fence-store.js';
import { fencedUpsert } from './fenced-statement.js';

/** Runs a statement of PostgreSQL: `(text, values) => pool.query(text, values)`. */
export type SqlQuery = (text: string, values: unknown[]) => Promise<{ rows: readonly unknown[] }>;

/** Where `SqlFence` keeps its tokens. */
export interface SqlFenceOptions {
  /** The name of the table. @default 'fencing_tokens' */
  table?: string;
  /** The column with the key of the lock, the primary key. @default 'key' */
  keyColumn?: string;
  /** The column with the highest token. @default 'fence' */
  column?: string;
}

/**
 * Keeps the highest fencing token of each key in a table of PostgreSQL, for resources without a row. The table:
 * `CREATE TABLE fencing_tokens (key text PRIMARY KEY, fence bigint NOT NULL)`.
 */
export class SqlFence implements FenceStore {
  readonly #options: SqlFenceOptions;

  constructor(
    private readonly query: SqlQuery,
    options: SqlFenceOptions = {},
  ) {
    this.#options = { ...options };
  }

  /** @throws the error of the query function */
  async raise(key: string, fencingToken: number): Promise<boolean> {
    checkKey(key);
    const { table = 'fencing_tokens', keyColumn = 'key', column } = this.#options;
    const { text, values } = fencedUpsert({ table, where: { [keyColumn]: key }, fence: fencingToken, column });
    const { rows }: { rows: unknown } = await this.query(text, values);
    if (!Array.isArray(rows)) {
      throw new LockOptionsError(
        `The query function of a SqlFence must resolve to { rows }: got rows of type ${typeof rows}.`,
      );
    }
    return rows.length > 0;
  }
}
