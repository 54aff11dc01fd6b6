import type { Row, Statement } from './statement.js';

/** One connection to a database. The port of the drivers: each adapter makes one. */
export interface SqlClient {
  /** Runs one statement at a time. @throws what the driver throws */
  query(statement: Pick<Statement, 'name' | 'text'>, values: readonly unknown[]): Promise<Row[]>;
  /** Listens to a channel, from when the promise is fulfilled. */
  listen(channel: string, onMessage: (message: string) => void): Promise<void>;
  /** Closes the connection at once: what is in flight fails. */
  close(): void;
}

/** Where connections are made. */
export interface SqlSource {
  /** `host:port/database`, never the URL, which may hold a password. */
  readonly name: string;
  /**
   * @param onEnd called once when the connection has ended, whoever ended it
   * @throws what the driver throws
   */
  connect(onEnd: (cause?: unknown) => void): Promise<SqlClient>;
}
