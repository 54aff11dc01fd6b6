import { problemOf, type Credentials } from '../node/problem-of.js';

/** A row of an answer. The type of numbers depends on the driver and on its configuration, so convert them with `Number`. */
export type Row = Readonly<Record<string, unknown>>;

/** One connection to a database. The adapter of each driver implements it. */
export interface SqlClient {
  /**
   * Runs one statement. Wait for its result before you run the next one.
   * @param text.name the name of the prepared statement
   * @throws the error of the driver, without credentials
   */
  query(text: { readonly name: string; readonly text: string }, values: readonly unknown[]): Promise<Row[]>;
  /** Closes the connection at once: statements in flight fail. */
  close(): void;
}

/** Opens connections. */
export interface SqlSource<Client extends SqlClient = SqlClient> {
  /** `host:port/database`, never the URL, which may contain a password. */
  readonly name: string;
  /**
   * @param onEnd called once when the connection has ended for any reason
   * @throws the error of the driver, without credentials
   */
  connect(onEnd: (cause?: unknown) => void): Promise<Client>;
}

/** Removes credentials from the error of a driver. The message of the server may contain them. */
export function withoutSecrets(error: unknown, of: Credentials): unknown {
  return error instanceof Error ? Object.assign(error, { message: problemOf(error, of) }) : error;
}
