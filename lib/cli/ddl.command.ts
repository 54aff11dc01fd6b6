import { ddl as ofMysql } from '../stores/sql/mysql/statements.js';
import { DIALECTS, quotedTable } from '../stores/sql/options.js';
import { ddl as ofPostgres } from '../stores/sql/postgres/statements.js';
import { EXIT, type Action } from './command.js';
import { UsageError } from './command-line.js';

/** Prints the statement that creates the table of the locks. */
export const ddl: Action = async ({ key: dialect, options: { table = 'resource_lock' }, terminal }) => {
  const known = DIALECTS.find((each) => each === dialect);
  if (!known) throw new UsageError('ddl is for a database: ddl postgres, or ddl mysql.');
  terminal.print(`${(known === 'mysql' ? ofMysql : ofPostgres)(quotedTable(table, known))};`);
  return EXIT.ok;
};
