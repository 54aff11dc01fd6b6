import { oneOf } from '../core/options/checks.js';
import { ddl as ofMysql } from '../stores/sql/mysql/statements.js';
import { DIALECTS, quotedTable, type SqlDialect } from '../stores/sql/options.js';
import { ddl as ofPostgres } from '../stores/sql/postgres/statements.js';

/**
 * Returns the statement that creates the table of the locks, for a migration.
 * @param dialect `postgres`, or `mysql`, also for MariaDB
 * @param options with the name of the table, as in the options of `SqlLockModule`. @default 'resource_lock'
 * @throws LockOptionsError
 */
export function ddl(dialect: SqlDialect, { table = 'resource_lock' }: { table?: string } = {}): string {
  oneOf(...DIALECTS)('dialect', dialect);
  return (dialect === 'mysql' ? ofMysql : ofPostgres)(quotedTable(table, dialect));
}
