import { ddl as ddlOf } from '../compose/ddl.js';
import { DIALECTS } from '../stores/sql/options.js';
import { EXIT, type Action } from './command.js';
import { UsageError } from './command-line.js';

/** Prints the statement that creates the table of the locks. */
export const ddl: Action = async ({ key: dialect, options: { table }, terminal }) => {
  const known = DIALECTS.find((each) => each === dialect);
  if (!known) {
    const got = /^\w+$/.test(dialect) ? `: got ${dialect}` : ''; // no URL, which may have a password
    throw new UsageError(`ddl is for PostgreSQL and MySQL${got}. Write ddl postgres, or ddl mysql.`);
  }
  terminal.print(`${ddlOf(known, { table })};`);
  return EXIT.ok;
};
