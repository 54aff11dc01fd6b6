import { NodeError } from '../../api/errors.js';

export const READ_ONLY =
  'It only reads: check that the address leads to the primary. The connection is made anew until it does.';
export const NO_TABLE = 'Create the table with what ddl() of nest-redis-lock/sql returns, in a migration.';

/** What to do about errors of the database. */
const ADVICE_ON: Readonly<Record<string, string>> = {
  '25006': READ_ONLY,
  '42P01': NO_TABLE,
  '42501': 'Give its user the rights SELECT, INSERT, UPDATE and DELETE on the table.',
  '42703': 'The table is not as ddl() of nest-redis-lock/sql describes it: compare its columns.',
  '28P01': 'Correct user and password.',
  '28000': 'Correct user and password, or pg_hba.conf.',
  '3D000': 'Correct the name of the database.',
  '53300':
    'Raise max_connections of the server, or lower the pools: each process has connections of its own for its locks.',
  '55P03': 'Another session holds the row of that lock for long: end it, or its transaction.',
};

/** The same errors, as MySQL calls them. */
const AS_POSTGRES: Readonly<Record<string, string>> = {
  ER_OPTION_PREVENTS_STATEMENT: '25006',
  ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION: '25006',
  ER_READ_ONLY_MODE: '25006',
  ER_NO_SUCH_TABLE: '42P01',
  ER_TABLEACCESS_DENIED_ERROR: '42501',
  ER_BAD_FIELD_ERROR: '42703',
  ER_ACCESS_DENIED_ERROR: '28P01',
  ER_BAD_DB_ERROR: '3D000',
  ER_DBACCESS_DENIED_ERROR: '3D000',
  ER_CON_COUNT_ERROR: '53300',
  ER_LOCK_WAIT_TIMEOUT: '55P03',
};

/** The error of a database, with what to do about it. @param code what the database calls the error */
export function sqlError(name: string, problem: string, code?: string): NodeError {
  if (/no answer within|timeout expired|connection timeout|ETIMEDOUT/i.test(problem)) {
    return new NodeError(
      name,
      problem,
      'Check that the server can be reached. If it can, it is too busy for commandTimeoutMs: raise that option.',
    );
  }
  return new NodeError(name, problem, code === undefined ? undefined : ADVICE_ON[AS_POSTGRES[code] ?? code]);
}
