import { problemOf, type Credentials } from '../node/problem-of.js';

/** A row of an answer. Which type a number has depends on the driver, and on how the application has set it up: read it with `Number`. */
export type Row = Readonly<Record<string, unknown>>;

/** One connection to a database. The port of the drivers: each adapter makes one. */
export interface SqlClient {
  /** Runs one statement at a time. @param text.name by which the connection knows it, once it is prepared @throws what the driver throws, without credentials */
  query(text: { readonly name: string; readonly text: string }, values: readonly unknown[]): Promise<Row[]>;
  /** Closes the connection at once: what is in flight fails. */
  close(): void;
}

/** Where connections are made. */
export interface SqlSource<Client extends SqlClient = SqlClient> {
  /** `host:port/database`, never the URL, which may hold a password. */
  readonly name: string;
  /**
   * @param onEnd called once when the connection has ended, whoever ended it
   * @throws what the driver throws, without credentials
   */
  connect(onEnd: (cause?: unknown) => void): Promise<Client>;
}

/** An error of a driver, in whose message its server may repeat who logs in. */
export function withoutSecrets(error: unknown, of: Credentials): unknown {
  return error instanceof Error ? Object.assign(error, { message: problemOf(error, of) }) : error;
}
