import { oneOf } from '../core/options/checks.js';
import { ddl as ofMysql } from '../stores/sql/mysql/statements.js';
import { DIALECTS, quotedTable, type SqlDialect } from '../stores/sql/options.js';
import { ddl as ofPostgres } from '../stores/sql/postgres/statements.js';

/**
 * The statement that creates the table of the locks, for a migration.
 * @param dialect `postgres`, or `mysql`, which is that of MariaDB, too
 * @param options with the name of the table, as `SqlLockModule` has it. @default 'resource_lock'
 * @throws LockOptionsError
 */
export function ddl(dialect: SqlDialect, { table = 'resource_lock' }: { table?: string } = {}): string {
  oneOf(...DIALECTS)('dialect', dialect);
  return (dialect === 'mysql' ? ofMysql : ofPostgres)(quotedTable(table, dialect));
}
