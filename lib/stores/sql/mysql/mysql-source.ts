import { LockOptionsError } from '../../../api/errors.js';
import { isOptions, invalidOption } from '../../../core/options/checks.js';
import { inTime } from '../../../core/time/time-limit.js';
import { installed } from '../../node/installed.js';
import { credentials } from '../../node/problem-of.js';
import { checkOptions, checkUrl } from '../check-source.js';
import { withoutSecrets, type Row, type SqlClient, type SqlSource } from '../sql-client.js';
import { checkTlsOptions, tlsWordsOf, unreadable } from '../tls-words.js';

/** Options of a connection of `mysql2`: see its documentation. Its other options are allowed, but ignored. */
export interface MysqlConfig {
  /**
   * A URL like `mysql://user:password@host:3306/database`. Its only supported parameter is `ssl`: `true`, `false`, `Amazon RDS`, or a JSON
   * object of TLS options. Other TLS parameters are refused.
   */
  uri?: string | undefined;
  host?: string | undefined;
  port?: number | undefined;
  user?: string | undefined;
  password?: string | undefined;
  database?: string | undefined;
  socketPath?: string | undefined;
  /** TLS options. The host name must match the certificate, unless `verifyIdentity` is false. */
  ssl?: unknown;
}

/** A pool of `mysql2` or `mysql2/promise`. Its options are copied, and its connections are never used. */
export interface MysqlPool {
  getConnection: (...args: never[]) => unknown;
  end: (...args: never[]) => unknown;
}

/** How to connect to MySQL or MariaDB: a URL, options of a `mysql2` connection, or a pool of `mysql2`. */
export type MysqlSource = string | MysqlConfig | MysqlPool;

/** The used parts of a `mysql2` connection. */
interface Mysql2Connection {
  query(options: { sql: string; values: unknown[] }, done: (error: Error | null, answer: unknown) => void): unknown;
  on(event: 'error' | 'end' | 'connect', listener: (error?: Error) => void): unknown;
  /** Ends the connection after a message to the server. */
  end(done: () => void): void;
  destroy(): void;
  /** Contains the TLS options of the connection. */
  readonly config: { ssl: false | { rejectUnauthorized: boolean; verifyIdentity?: boolean } };
  /** The socket. */
  readonly stream: { destroy(): void; unref(): void };
}

interface Mysql2 {
  createConnection(config: object): Mysql2Connection;
}

/** The answer to a statement that writes. */
export interface Written {
  readonly affectedRows: number;
  readonly insertId: number;
}

/** A connection to a MySQL or MariaDB. */
export interface MysqlClient extends SqlClient {
  /** Runs writing statements, separated by `;`. @returns an answer for each @throws the error of the driver */
  write(sql: string, values: readonly unknown[]): Promise<Written[]>;
}

/** The options to use for a connection. Other options of `mysql2` would change the form of its answers. */
const CONNECTION_OPTIONS = [
  'host',
  'port',
  'user',
  'password',
  'password1',
  'password2',
  'password3',
  'passwordSha1',
  'database',
  'socketPath',
  'localAddress',
  'ssl',
  'stream',
  'compress',
  'authPlugins',
  'authSwitchHandler',
  'enableCleartextPlugin',
] as const;

/**
 * The session settings for locks: read committed data without a row limit, wait for locked rows as briefly as MySQL can (one second), and
 * commit each statement. `completion_type = 0` prevents a COMMIT from starting the next transaction.
 */
const SESSION =
  'SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED; ' +
  'SET SESSION autocommit = 1, completion_type = 0, group_concat_max_len = 1024, innodb_lock_wait_timeout = 1, ' +
  "sql_mode = 'STRICT_ALL_TABLES', sql_safe_updates = 0, sql_select_limit = 18446744073709551615";

/** The variables that the remaining settings depend on. */
const VARIABLES = "SHOW VARIABLES WHERE Variable_name IN ('version', 'innodb_snapshot_isolation')";

const EXPECTED = 'a URL, options of mysql2, or a pool of mysql2';
const ADDRESS = ['host', 'uri', 'socketPath'];
const SCHEME = /^(mysql|mariadb):\/\//;
const EXAMPLE = 'mysql://user:password@host:3306/database';

/** @throws LockOptionsError for an invalid source, or for a connection that the application itself uses */
export function checkMysql(name: string, source: unknown): asserts source is MysqlSource {
  if (typeof source === 'string') return checkUrl(name, source, SCHEME, EXAMPLE);
  if (!isOptions(source)) throw invalidOption(name, source, EXPECTED);
  if (isPool(source)) return;
  if ('rollback' in source || 'query' in source) {
    throw new LockOptionsError(
      `${name} must not be a connection or a transaction that the application uses itself: a lock would end with its rollback. ` +
        'Give the URL, the options, or the pool: locks have a connection of their own.',
    );
  }
  checkOptions(name, source, EXPECTED, ADDRESS);
  if (source.uri !== undefined) checkUrl(`${name}.uri`, source.uri, SCHEME, EXAMPLE);
}

/**
 * @param commandTimeoutMs the time limit of a statement
 * @param namesDatabase whether the name of the table includes its database
 * @throws LockOptionsError when the URL cannot be read, no database is named, or `mysql2` is not installed
 */
export async function openMysql(
  source: MysqlSource,
  commandTimeoutMs: number,
  namesDatabase = false,
): Promise<SqlSource<MysqlClient>> {
  const config = connectionOf(source);
  if (!namesDatabase && !config.database) {
    throw new LockOptionsError(
      'mysql names no database: write it into the URL, as in mysql://user:password@host:3306/database, into the options, ' +
        "or into the name of the table, as in 'database.name'.",
    );
  }
  const module: unknown = await installed('mysql2', import('mysql2'), 'Locks in MySQL or MariaDB');
  const mysql2 = module as Mysql2 & { default?: Mysql2 };
  return new Mysql2Source(mysql2.default ?? mysql2, config, commandTimeoutMs);
}

function isPool(source: object): source is MysqlPool {
  return 'getConnection' in source && 'end' in source;
}

/** Returns the options of a connection. @throws LockOptionsError when the URL cannot be read */
function connectionOf(source: MysqlSource): MysqlConfig {
  const given = typeof source === 'string' ? { uri: source } : isPool(source) ? configOf(source) : source;
  const config: Record<string, unknown> = given.uri === undefined ? {} : configOfUrl(given.uri);
  const asked = config.ssl;
  for (const name of CONNECTION_OPTIONS) {
    const value = (given as Record<string, unknown>)[name];
    if (value !== undefined) config[name] = value;
  }
  checkTlsOptions(given, ['ssl', 'insecureAuth']);
  const { ssl } = config;
  if (ssl && typeof ssl !== 'object' && ssl !== RDS)
    throw new LockOptionsError(
      `ssl of mysql must be an object with TLS options, like {}, or '${RDS}': mysql2 accepts nothing else.`,
    );
  if (!ssl && asked)
    throw new LockOptionsError('The URL of the database asks for TLS, and its options forbid it. Remove one of them.');
  return config;
}

/** Returns the options of a pool. A pool of `mysql2/promise` wraps another pool. */
function configOf(pool: MysqlPool & { pool?: unknown; config?: { connectionConfig?: MysqlConfig } }): MysqlConfig {
  const { config } = (pool.pool ?? pool) as typeof pool;
  if (config?.connectionConfig) return config.connectionConfig;
  throw new LockOptionsError('mysql is a pool whose options cannot be read: give the URL, or the options, instead.');
}

/** Parses the URL, because `mysql2` would accept any option from its query. @throws LockOptionsError */
function configOfUrl(text: string): Record<string, unknown> {
  const [ssl] = tlsWordsOf(text, { ssl: /^/ });
  try {
    const { hostname, port, username, password, pathname } = new URL(text);
    return {
      host: decodeURIComponent(hostname).replace(/^\[(.*)\]$/, '$1'), // an IPv6 address
      port: port === '' ? undefined : Number(port),
      user: decodeURIComponent(username),
      password: decodeURIComponent(password),
      database: decodeURIComponent(pathname.slice(1)),
      ssl: ssl && tlsOf(ssl[1]),
    };
  } catch (error) {
    throw error instanceof LockOptionsError ? error : unreadable();
  }
}

/** The name of a TLS profile in `mysql2`. */
const RDS = 'Amazon RDS';

/** Parses `ssl` of a URL. @throws LockOptionsError without the text, since it may contain a key */
function tlsOf(text: string): unknown {
  if (text === 'false') return undefined;
  if (text === 'true') return {};
  if (text === RDS) return text;
  try {
    const options: unknown = JSON.parse(text);
    if (typeof options === 'object' && options !== null && !Array.isArray(options)) return options;
  } catch {
    // refused below
  }
  throw new LockOptionsError(
    'ssl in the URL of the database must be true, false, Amazon RDS, or an object with TLS options as JSON, ' +
      'like {"rejectUnauthorized":false}.',
  );
}

/** Opens connections with `mysql2`. */
class Mysql2Source implements SqlSource<MysqlClient> {
  readonly name: string;
  readonly #shown: (error: unknown) => Error;

  constructor(
    private readonly mysql2: Mysql2,
    private readonly config: MysqlConfig,
    private readonly commandTimeoutMs: number,
  ) {
    const { host = 'localhost', port = 3306, socketPath, database = '' } = config;
    const { user, password, password1, password2, password3 } = config as Record<string, unknown>;
    const login = credentials([password, password1, password2, password3], [user]);
    this.#shown = (error) => withoutSecrets(error, login) as Error;
    this.name = `${socketPath ?? `${host}:${port}`}/${database}`;
  }

  async connect(onEnd: (cause?: unknown) => void): Promise<MysqlClient> {
    const connection = this.mysql2.createConnection({
      ...this.config,
      charset: 'utf8mb4',
      multipleStatements: true,
      connectTimeout: this.commandTimeoutMs,
      enableKeepAlive: true,
      connectAttributes: { program_name: 'nest-redis-lock' },
    });
    const { config } = connection;
    // Otherwise mysql2 accepts a trusted certificate of any host.
    if (config.ssl)
      config.ssl = { ...config.ssl, verifyIdentity: config.ssl.verifyIdentity ?? config.ssl.rejectUnauthorized };
    let cause: unknown;
    let isEnded = false;
    const ended = () => {
      if (isEnded) return;
      isEnded = true;
      onEnd(cause);
    };
    await new Promise<void>((resolve, reject) => {
      connection.on('connect', () => resolve());
      connection.on('error', (error) => {
        cause ??= this.#shown(error);
        reject(this.#shown(error));
        ended(); // an error event always ends the connection
      });
      connection.on('end', () => {
        reject(new Error('the connection was closed'));
        ended();
      });
    });
    const inFlight = new Set<(error: Error) => void>();
    const send = (sql: string, values: readonly unknown[]) =>
      new Promise<unknown>((resolve, reject) => {
        inFlight.add(reject);
        connection.query({ sql, values: [...values] }, (error, answer) => {
          inFlight.delete(reject);
          if (error) reject(this.#shown(error));
          else resolve(answer);
        });
      });
    const client: MysqlClient = {
      query: ({ text }, values) => send(text, values) as Promise<Row[]>,
      write: async (sql, values) => [await send(sql, values)].flat() as Written[],
      close: () => {
        if (inFlight.size === 0) {
          connection.end(() => {});
          connection.stream.unref(); // so that a server that hangs cannot keep the process alive
          return;
        }
        connection.destroy();
        connection.stream.destroy();
        for (const fail of inFlight) fail(new Error('the connection was closed')); // mysql2 does not fail them
      },
    };
    try {
      // Only this code can close a connection that hangs here.
      await inTime(this.#setUp(client), this.commandTimeoutMs, () => {
        throw new Error(`no answer within ${this.commandTimeoutMs} ms`);
      });
    } catch (error) {
      client.close();
      throw error;
    }
    return client;
  }

  async #setUp(client: MysqlClient): Promise<void> {
    await client.write(SESSION, []);
    const rows = await client.query({ name: 'variables', text: VARIABLES }, []);
    const variables = new Map(rows.map((row) => Object.values(row) as [name: string, value: string]));
    // The server ends statements whose callers no longer wait. MySQL can do so only for statements that read, or that wait for the table.
    const settings = /mariadb/i.test(String(variables.get('version')))
      ? [`max_statement_time = ${this.commandTimeoutMs / 1_000}`]
      : [
          `max_execution_time = ${this.commandTimeoutMs}`,
          `lock_wait_timeout = ${Math.ceil(this.commandTimeoutMs / 1_000)}`,
        ];
    // Otherwise a statement that reads a row and then locks it fails if the row changed in between.
    if (variables.has('innodb_snapshot_isolation')) settings.push('innodb_snapshot_isolation = 0');
    await client.write(`SET SESSION ${settings.join(', ')}`, []);
  }
}
