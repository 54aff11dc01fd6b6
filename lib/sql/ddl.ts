import { oneOf } from '../core/options/checks.js';
import { quotedTable } from '../stores/sql/options.js';
import { ddl as ofPostgres } from '../stores/sql/postgres/statements.js';

/**
 * The statement that creates the table of the locks, for a migration.
 * @param dialect of the database
 * @param options with the name of the table, as `SqlLockModule` has it. @default 'resource_lock'
 * @throws LockOptionsError
 */
export function ddl(dialect: 'postgres', { table = 'resource_lock' }: { table?: string } = {}): string {
  oneOf('postgres')('dialect', dialect);
  return ofPostgres(quotedTable(table));
}
