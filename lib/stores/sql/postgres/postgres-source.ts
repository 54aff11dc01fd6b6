import { createHash } from 'node:crypto';
import { LockOptionsError } from '../../../api/errors.js';
import { isOptions, invalidOption } from '../../../core/options/checks.js';
import { installed } from '../../node/installed.js';
import { credentials } from '../../node/problem-of.js';
import { checkOptions, checkUrl } from '../check-source.js';
import { withoutSecrets, type Row, type SqlClient, type SqlSource } from '../sql-client.js';
import { checkTlsOptions, tlsWordsOf } from '../tls-words.js';

/** A connection to a PostgreSQL. */
export interface PostgresClient extends SqlClient {
  /** The process id of its session, or the id from a pooler; undefined if unknown. */
  readonly processId?: number | null;
  /** Listens to a channel. Messages arrive once the promise has resolved. */
  listen(channel: string, onMessage: (message: string) => void): Promise<void>;
}

/** Options of a `Client` of `pg`: see its documentation. Its other options are allowed, too. */
export interface PostgresConfig {
  connectionString?: string | undefined;
  host?: string | undefined;
  port?: number | undefined;
  user?: string | undefined;
  password?: string | (() => string | Promise<string>) | undefined;
  database?: string | undefined;
  ssl?: unknown;
  /** Settings of the session, like `-c search_path=shop`. The settings that locks need override them. */
  options?: string | undefined;
  /** The class of the clients. @default `Client` of the installed `pg` */
  Client?: unknown;
}

/** A `Pool` of `pg`. Its options are copied, and its connections are never used. */
export interface PostgresPool {
  readonly options: object;
  readonly totalCount: number;
  connect(): Promise<unknown>;
}

/** A PGlite: PostgreSQL in this process. Locks share it with the application. */
export interface PGliteInstance {
  readonly waitReady: Promise<void>;
  query(text: string, values?: unknown[]): Promise<{ rows: unknown[] }>;
  listen(channel: string, onMessage: (message: string) => void): Promise<unknown>;
}

/** How to connect to PostgreSQL: a URL, options of `pg`, a `Pool` of `pg`, or a PGlite. */
export type PostgresSource = string | PostgresConfig | PostgresPool | PGliteInstance;

/** The used parts of a `Client` of `pg`. */
interface PgClient {
  readonly host: string;
  readonly port: number;
  readonly database?: string;
  /** The process id of its session on the server. */
  readonly processID?: number | null;
  readonly user?: string;
  /** The text, even if a function has returned it. */
  readonly password?: unknown;
  readonly connectionParameters: { readonly ssl: unknown };
  connect(): Promise<unknown>;
  query(query: { name?: string; text: string; values: unknown[] }): Promise<{ rows: Row[] }>;
  end(): Promise<void>;
  unref(): void;
  on(event: 'error' | 'end', listener: (error?: Error) => void): unknown;
  on(event: 'notification', listener: (message: { channel: string; payload?: string }) => void): unknown;
}

type PgClientClass = new (config: object) => PgClient;

/** The error of poolers that refuse the settings of a session. */
const REFUSED_SETTINGS = /unsupported startup parameter/i;
/** Errors behind a pooler whose current server lacks the prepared statement, or has another one of that name. */
const FOREIGN_STATEMENT = new Set(['26000', '42P05']);

const EXPECTED = 'a URL, options of pg, a Pool of pg, or a PGlite';
const ADDRESS = ['host', 'connectionString'];
const SCHEME = /^postgres(ql)?:\/\//;
const EXAMPLE = 'postgres://user:password@host:5432/database';

/** @throws LockOptionsError for an invalid source, or for a connection that the application itself uses */
export function checkPostgres(name: string, source: unknown): asserts source is PostgresSource {
  if (typeof source === 'string') return checkUrl(name, source, SCHEME, EXAMPLE);
  if (!isOptions(source)) throw invalidOption(name, source, EXPECTED);
  if (isPGlite(source) || isPool(source)) return;
  if ('rollback' in source || 'query' in source) {
    throw new LockOptionsError(
      `${name} must not be a connection or a transaction that the application uses itself: a lock would end with its rollback. ` +
        'Give the URL, the options, or the Pool: locks have connections of their own.',
    );
  }
  checkOptions(name, source, EXPECTED, ADDRESS, process.env.PGHOST); // the default host of pg
  if (source.connectionString !== undefined)
    checkUrl(`${name}.connectionString`, source.connectionString, SCHEME, EXAMPLE);
}

/**
 * @param commandTimeoutMs the time limit of a statement
 * @throws LockOptionsError when `pg` is needed but not installed, or when it cannot read the URL
 */
export async function openPostgres(
  source: PostgresSource,
  commandTimeoutMs: number,
): Promise<SqlSource<PostgresClient>> {
  if (isPGlite(source)) return new PGliteSource(source);
  const Client = await clientClassOf(source);
  const given =
    typeof source === 'string'
      ? { connectionString: source }
      : isPool(source)
        ? (source.options as PostgresConfig)
        : source;
  return new PgSource(Client, given, commandTimeoutMs);
}

function isPGlite(source: object | string): source is PGliteInstance {
  return typeof source === 'object' && 'waitReady' in source && 'listen' in source;
}

function isPool(source: object | string): source is PostgresPool {
  return typeof source === 'object' && 'totalCount' in source && 'options' in source;
}

async function clientClassOf(source: PostgresSource): Promise<PgClientClass> {
  if (typeof source === 'object' && 'Client' in source) return source.Client as PgClientClass; // a Pool has the class, too
  const module: unknown = await installed('pg', import('pg'), 'Locks in PostgreSQL');
  const pg = module as { Client?: PgClientClass; default?: { Client: PgClientClass } };
  return (pg.Client ?? pg.default?.Client)!;
}

/** Session settings of the application that locks must not use. */
const SESSION_OPTIONS = ['application_name', 'lock_timeout', 'options', 'query_timeout', 'statement_timeout'];

/** The TLS parameters in a URL that `pg` knows. It cannot require channel binding, and has no GSS encryption. */
const TLS_WORDS = {
  ssl: /^(true|1|0|no-verify)$/,
  sslmode: /^(disable|prefer|require|verify-ca|verify-full|no-verify)$/,
  sslcert: /./,
  sslkey: /./,
  sslrootcert: /./,
  sslnegotiation: /^(postgres|direct)$/,
  channel_binding: /^(disable|prefer|require)$/,
  gssencmode: /^(disable|prefer)$/,
};
const PLAIN_TLS_WORDS = /^(ssl=0|sslnegotiation=postgres|gssencmode=.*|\w+=disable|channel_binding=prefer)$/;

/** Removes session settings from the options and from the query of the URL, which `pg` prefers to the options. */
function connectionOf(given: PostgresConfig): PostgresConfig {
  // The spread does not copy the password of a Pool.
  const config: PostgresConfig & Record<string, unknown> = { ...given, password: given.password };
  const [address, query] = config.connectionString?.split(/\?(.*)/s) ?? [];
  const parameters = new URLSearchParams(query);
  const options = parameters.get('options') ?? given.options;
  for (const name of SESSION_OPTIONS) {
    delete config[name];
    parameters.delete(name);
  }
  return { ...config, options, ...(query && { connectionString: `${address}?${String(parameters)}` }) };
}

/** Names by text of the statement. */
const preparedNames = new Map<string, string>();

/**
 * Returns a name for a prepared statement that depends on its text. Behind a pooler, a session may have a statement for another table or
 * from another version of this library. Under the same name, it would run that statement.
 */
function preparedName(name: string, text: string): string {
  const known = preparedNames.get(text);
  if (known !== undefined) return known;
  const made = `nest_redis_lock_${name}_${createHash('sha256').update(text).digest('hex').slice(0, 16)}`;
  preparedNames.set(text, made);
  return made;
}

/** Opens connections with `pg`. */
class PgSource implements SqlSource<PostgresClient> {
  readonly name: string;
  readonly #config: PostgresConfig;
  #isBehindPooler = false;
  #namesStatements = true;

  constructor(
    private readonly Client: PgClientClass,
    given: PostgresConfig,
    private readonly commandTimeoutMs: number,
  ) {
    this.#config = connectionOf(given);
    checkTlsOptions(given, ['ssl', 'sslnegotiation', 'enableChannelBinding']);
    const words = tlsWordsOf(given.connectionString ?? 'postgres://', TLS_WORDS);
    const { host, port, database, connectionParameters } = this.#client();
    const { ssl } = connectionParameters;
    if (typeof ssl === 'string')
      throw new LockOptionsError("ssl of postgres must be true, false, 'no-verify', or an object with TLS options.");
    if (!ssl && (given.ssl || words.some((word) => !PLAIN_TLS_WORDS.test(word.join('=')))))
      throw new LockOptionsError(
        'The URL and the options of the database contradict each other about TLS, and pg would connect without it.',
      );
    this.name = `${host}:${port}/${database ?? ''}`;
  }

  async connect(onEnd: (cause?: unknown) => void): Promise<PostgresClient> {
    const client = this.#client();
    let cause: unknown;
    const shown = (error: unknown) => withoutSecrets(error, credentials([client.password], [client.user]));
    const fail = (error: unknown) => Promise.reject(shown(error));
    client.on('error', (error) => (cause ??= shown(error)));
    try {
      await client.connect();
    } catch (error) {
      if (this.#isBehindPooler || !REFUSED_SETTINGS.test(String(error))) return fail(error);
      this.#isBehindPooler = true;
      return this.connect(onEnd);
    }
    client.on('end', () => onEnd(cause));
    return {
      processId: client.processID,
      query: ({ name, text }, values) => this.#query(client, name, text, values).catch(fail),
      listen: async (channel, onMessage) => {
        client.on('notification', (message) => {
          if (message.channel === channel) onMessage(message.payload ?? '');
        });
        await client.query({ text: `LISTEN ${channel}`, values: [] }).catch(fail);
      },
      close: () => {
        client.unref(); // so that a server that hangs cannot keep the process alive
        void client.end().catch(() => {});
      },
    };
  }

  async #query(client: PgClient, name: string, text: string, values: readonly unknown[]): Promise<Row[]> {
    const query = { text, values: [...values] };
    if (!this.#namesStatements) return (await client.query(query)).rows;
    try {
      return (await client.query({ ...query, name: preparedName(name, text) })).rows;
    } catch (error) {
      if (!FOREIGN_STATEMENT.has((error as { code?: string }).code ?? '')) throw error;
      this.#namesStatements = false; // the statement has not run
      return (await client.query(query)).rows;
    }
  }

  #client(): PgClient {
    const { commandTimeoutMs } = this;
    const { options, ...config } = this.#config;
    const settings = this.#isBehindPooler ? [] : settingsOf(commandTimeoutMs);
    try {
      return new this.Client({
        ...config,
        options: [options, ...settings].filter(Boolean).join(' '),
        application_name: 'nest-redis-lock',
        connectionTimeoutMillis: commandTimeoutMs,
        keepAlive: true,
      });
    } catch (error) {
      // The message of pg may contain the URL.
      throw new LockOptionsError(
        'pg cannot read the URL of the database, its options, or a file that they name. Special characters in the password must be encoded.',
        {
          cause: (error as { code?: unknown }).code,
        },
      );
    }
  }
}

/**
 * The session settings for locks. They forbid plans that read or sort the whole table: PostgreSQL would still use a plan for an empty table
 * when the table is large. The timeouts end statements whose callers no longer wait.
 */
function settingsOf(commandTimeoutMs: number): string[] {
  const settings = {
    default_transaction_isolation: 'read\\ committed',
    statement_timeout: commandTimeoutMs,
    lock_timeout: Math.ceil(commandTimeoutMs / 4),
    plan_cache_mode: 'force_generic_plan', // planning costs more than running the statement
    enable_seqscan: 'off',
    enable_bitmapscan: 'off',
    enable_hashjoin: 'off',
    enable_mergejoin: 'off',
    jit: 'off',
  };
  return Object.entries(settings).map(([name, value]) => `-c ${name}=${value}`);
}

/** The shared connection of a PGlite. It gets no session settings, and is never closed. */
class PGliteSource implements SqlSource<PostgresClient> {
  readonly name = 'PGlite';

  constructor(private readonly database: PGliteInstance) {}

  async connect(): Promise<PostgresClient> {
    const { database } = this;
    await database.waitReady;
    let unlisten: unknown;
    return {
      query: async ({ text }, values) => (await database.query(text, [...values])).rows as Row[],
      listen: async (channel, onMessage) => {
        unlisten = await database.listen(channel, onMessage);
      },
      close: () => {
        if (typeof unlisten === 'function') void (unlisten as () => Promise<void>)().catch(() => {});
      },
    };
  }
}
