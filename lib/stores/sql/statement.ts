import type { Row, SqlClient } from './sql-client.js';

/** An operation on the database, for one lock, or for many at once: mostly a single statement. */
export interface Statement {
  /** As of `Command` in core/backend/lane.ts. */
  readonly order: number;
  /** For how many locks at most. */
  readonly most: number;
  /**
   * Runs it. One that is for several locks takes arrays, the first one that of their keys, and answers with rows that have the `key`.
   * @throws what the driver throws; `HalfDone` when a part of it has taken effect
   */
  run(client: SqlClient, values: readonly unknown[]): Promise<Row[]>;
}
