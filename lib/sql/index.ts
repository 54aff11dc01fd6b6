export type {
  MysqlLockModuleOptions,
  PostgresLockModuleOptions,
  SqlLockModuleOptions,
  SqlLockOptionsFactory,
  SqlLockSettings,
} from '../compose/sql-lock-options.js';
export type { MysqlDiagnosis, MysqlFindingCode } from '../stores/sql/mysql/mysql-doctor.js';
export type { MysqlConfig, MysqlPool, MysqlSource } from '../stores/sql/mysql/mysql-source.js';
export type { PostgresDiagnosis, PostgresFindingCode } from '../stores/sql/postgres/postgres-doctor.js';
export type { JanitorOptions, SqlDialect, SqlStoreOptions } from '../stores/sql/options.js';
export type {
  PGliteInstance,
  PostgresConfig,
  PostgresPool,
  PostgresSource,
} from '../stores/sql/postgres/postgres-source.js';
export type { GuardStatement } from '../core/backend/lock-backend.js';
export { ddl } from '../compose/ddl.js';
export { guard, guardStatement, type Transaction, type TransactionQuery } from './guard.js';
export { SqlLockModule } from './sql-lock.module.js';
