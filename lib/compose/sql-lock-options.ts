import { isDeepStrictEqual } from 'node:util';
import { LockOptionsError } from '../api/errors.js';
import type { LockServiceOptions } from '../api/options.js';
import { refuseUnknown, unfit } from '../core/options/checks.js';
import {
  DEFAULT_REGISTRATION,
  resolveServiceOptions,
  SERVICE_CHECKS,
  type ResolvedServiceOptions,
} from '../core/options/service-options.js';
import { resolveSqlOptions, SQL_CHECKS, type ResolvedSqlOptions, type SqlStoreOptions } from '../stores/sql/options.js';
import { checkPostgres, type PostgresSource } from '../stores/sql/postgres/postgres-source.js';

/** Settings of one registration of the module. */
export interface SqlLockSettings extends LockServiceOptions, SqlStoreOptions {}

/** The database, and the settings. */
export type SqlLockModuleOptions = SqlLockSettings & {
  /**
   * A PostgreSQL 12 or later, the primary: `postgres://…`, the options of `pg`, a `Pool` of it, whose options are copied, or a PGlite. Locks
   * have two connections of their own for each process, named `nest-redis-lock`; a PGlite is shared.
   */
  postgres: PostgresSource;
};

/** For `forRootAsync({ useClass | useExisting })`. */
export interface SqlLockOptionsFactory {
  createSqlLockOptions(): SqlLockModuleOptions | Promise<SqlLockModuleOptions>;
}

/** The database that keeps the locks. */
export interface SqlServer {
  readonly kind: 'postgres';
  readonly source: PostgresSource;
}

/** Options with every default filled in and every bound checked. */
export interface ResolvedSqlLockOptions extends ResolvedServiceOptions, ResolvedSqlOptions {
  /** Name of the registration; the default one is called `default`. */
  registration: string;
  backend: SqlServer;
}

const NAMES = [...Object.keys(SERVICE_CHECKS), ...Object.keys(SQL_CHECKS), 'postgres'];

const BESIDE_FACTORY = 'name and isGlobal go beside useFactory, not into what it returns.';
const POSTGRES_OPTION = 'Did you mean postgres: { host: ... }?';
const OF_REDIS = 'It is an option of RedisLockModule, which keeps locks in Redis.';

/** Advice for names that are no options. */
const MEANT = {
  name: BESIDE_FACTORY,
  isGlobal: BESIDE_FACTORY,
  url: "Did you mean postgres: 'postgres://user:password@host:5432/database'?",
  connectionString: 'Did you mean postgres: { connectionString: ... }?',
  pool: 'Did you mean postgres: pool?',
  host: POSTGRES_OPTION,
  port: POSTGRES_OPTION,
  user: POSTGRES_OPTION,
  password: POSTGRES_OPTION,
  database: POSTGRES_OPTION,
  schema: "Did you mean table: 'schema.name'?",
  tableName: "Did you mean table: 'name'?",
  redis: OF_REDIS,
  redlock: OF_REDIS,
  memory: 'RedisLockModule.forRoot({ memory: true }) keeps locks in memory.',
  keyPrefix: 'Locks of another application go into another table: see the option table.',
  waitForReplicas: 'PostgreSQL waits for its replicas itself: see its setting synchronous_standby_names.',
  admission: 'It is an option of a Redlock. A PostgreSQL that writes to disk before it answers forgets no lock.',
};

/**
 * The one place where the options of `SqlLockModule` are checked and defaulted.
 * @throws LockOptionsError for an unknown option, or a value out of bounds
 */
export function resolveSqlLockOptions(
  options: SqlLockModuleOptions,
  registration = DEFAULT_REGISTRATION,
): ResolvedSqlLockOptions {
  if (typeof options !== 'object' || options === null) throw unfit('options', options, 'an object');
  refuseUnknown(options, NAMES, MEANT);
  const { postgres } = options;
  if (postgres === undefined) {
    const got = 'postgres' in options ? 'postgres: undefined. Is the variable set?' : 'none.';
    throw new LockOptionsError(`A database is expected, as postgres: got ${got}`);
  }
  checkPostgres('postgres', postgres);
  const settings = { ...resolveSqlOptions(options), ...resolveServiceOptions(options) };
  return { ...settings, registration, backend: { kind: 'postgres', source: postgres } };
}

/** Whether two registrations have the same table. Two pools count as different, whatever they are connected to. */
export function isSameDatabase(one: SqlServer, other: SqlServer): boolean {
  const [source, another] = [one.source, other.source];
  if (source === another) return true;
  const isPlain = (each: unknown) => typeof each === 'string' || Object.getPrototypeOf(each) === Object.prototype;
  return isPlain(source) && isPlain(another) && isDeepStrictEqual(source, another);
}
