import { LockOptionsError } from '../api/errors.js';
import type { LockServiceOptions } from '../api/options.js';
import { checkMysql, type MysqlSource } from '../stores/sql/mysql/mysql-source.js';
import {
  DIALECTS,
  resolveSqlOptions,
  SQL_CHECKS,
  type ResolvedSqlOptions,
  type SqlStoreOptions,
} from '../stores/sql/options.js';
import { checkPostgres, type PostgresSource } from '../stores/sql/postgres/postgres-source.js';
import type { ResolvedLockOptions, StoreKind } from './composition.js';
import { openSqlBackend } from './open-sql.js';

/** Settings of one registration of the module. */
export interface SqlLockSettings extends LockServiceOptions, SqlStoreOptions {}

/** Options for locks in PostgreSQL. */
export interface PostgresLockModuleOptions extends SqlLockSettings {
  /**
   * The primary of PostgreSQL 12 or later: `postgres://…`, the options of `pg`, a `Pool` of `pg`, whose options are copied, or a
   * PGlite. Each process opens two connections for locks, named `nest-redis-lock`; a PGlite is shared.
   */
  postgres: PostgresSource;
  mysql?: undefined;
}

/** Options for locks in MySQL or MariaDB. */
export interface MysqlLockModuleOptions extends SqlLockSettings {
  /**
   * The primary of MariaDB 10.6 or later, or MySQL 8.0.1 or later: `mysql://…`, the options of `mysql2`, or a pool of `mysql2`, whose
   * options are copied. Each process opens one connection for locks.
   */
  mysql: MysqlSource;
  postgres?: undefined;
  /** Not supported: these databases cannot notify a waiting process. */
  fair?: false;
}

/** The database, and the settings. */
export type SqlLockModuleOptions = PostgresLockModuleOptions | MysqlLockModuleOptions;

/** For `forRootAsync({ useClass | useExisting })`. */
export interface SqlLockOptionsFactory {
  createSqlLockOptions(): SqlLockModuleOptions | Promise<SqlLockModuleOptions>;
}

/** The database that keeps the locks. */
export type SqlServer =
  | { readonly kind: 'postgres'; readonly source: PostgresSource }
  | { readonly kind: 'mysql'; readonly source: MysqlSource };

/** Options with every default filled in and every bound checked. */
export interface ResolvedSqlLockOptions extends ResolvedLockOptions, ResolvedSqlOptions {
  backend: SqlServer;
}

const DATABASE_HINT = 'Did you mean postgres: { host: ... }, or mysql: { host: ... }?';
const REDIS_MODULE_HINT = 'It is an option of RedisLockModule, which keeps locks in Redis.';

/** Locks in a table of a database. */
export const SQL: StoreKind<SqlLockModuleOptions, ResolvedSqlLockOptions> = {
  names: [...Object.keys(SQL_CHECKS), ...DIALECTS],
  meant: {
    url: "Did you mean postgres: 'postgres://user:password@host:5432/database', or mysql: 'mysql://...'?",
    mariadb: 'Did you mean mysql? It is also for MariaDB.',
    connectionString: 'Did you mean postgres: { connectionString: ... }?',
    pool: 'Did you mean postgres: pool, or mysql: pool?',
    host: DATABASE_HINT,
    port: DATABASE_HINT,
    user: DATABASE_HINT,
    password: DATABASE_HINT,
    database: DATABASE_HINT,
    schema: "Did you mean table: 'schema.name'?",
    tableName: "Did you mean table: 'name'?",
    redis: REDIS_MODULE_HINT,
    redlock: REDIS_MODULE_HINT,
    memory: 'RedisLockModule.forRoot({ memory: true }) keeps locks in memory.',
    keyPrefix: 'To separate the locks of applications, use a table for each: see the option table.',
    waitForReplicas:
      'A database waits for its replicas itself: see synchronous_standby_names, or semi-synchronous replication.',
    admission: 'It is an option of a Redlock. A database that writes to disk before it answers does not forget locks.',
  },
  // `resolve` refuses it with its own message.
  unlistedIn: (options) => ('mysql' in options ? ['fair'] : []),
  resolve: (options, { fair }) => {
    const backend = serverOf(options);
    const store = resolveSqlOptions(options);
    if (backend.kind === 'mysql' && fair) {
      throw new LockOptionsError(
        'fair needs a queue in the database, and MySQL and MariaDB cannot notify a waiting process: remove fair, or keep the locks in ' +
          'PostgreSQL or Redis.',
      );
    }
    return { ...store, backend };
  },
  open: openSqlBackend,
};

/** @throws LockOptionsError */
function serverOf(options: { postgres?: unknown; mysql?: unknown }): SqlServer {
  const { postgres, mysql } = options;
  if (postgres !== undefined && mysql !== undefined)
    throw new LockOptionsError(
      'One database is expected: got postgres and mysql. Register the module once for each, with different names.',
    );
  if (mysql !== undefined) {
    checkMysql('mysql', mysql);
    return { kind: 'mysql', source: mysql };
  }
  if (postgres === undefined) {
    const given = DIALECTS.find((dialect) => dialect in options);
    const got = given === undefined ? 'none.' : `${given}: undefined. Is the variable set?`;
    throw new LockOptionsError(`A database is expected, as postgres or mysql: got ${got}`);
  }
  checkPostgres('postgres', postgres);
  return { kind: 'postgres', source: postgres };
}
