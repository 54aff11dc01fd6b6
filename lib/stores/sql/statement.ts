import type { Row, SqlClient } from './sql-client.js';

/** An operation on the database for one or many locks, usually a single statement. */
export interface Statement {
  /** See `Command` in core/backend/lane.ts. */
  readonly order: number;
  /** The maximum number of locks. */
  readonly most: number;
  /**
   * Runs it. An operation for several locks takes arrays, the first of which has the keys, and returns rows with a `key`.
   * @throws the error of the driver, or `HalfDone` if a part of it has taken effect
   */
  run(client: SqlClient, values: readonly unknown[]): Promise<Row[]>;
}
