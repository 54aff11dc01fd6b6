import { quotedTable } from '../stores/sql/options.js';
import { ddl as ddlOf } from '../stores/sql/postgres/statements.js';
import { EXIT, type Action } from './command.js';
import { UsageError } from './command-line.js';

/** Prints the statement that creates the table of the locks. */
export const ddl: Action = async ({ key: dialect, options: { table = 'resource_lock' }, terminal }) => {
  if (dialect !== 'postgres') throw new UsageError('ddl is for a database: ddl postgres.');
  terminal.print(`${ddlOf(quotedTable(table))};`);
  return EXIT.ok;
};
