import { LockOptionsError, NodeError } from '../../api/errors.js';

export const READ_ONLY =
  'The server is read-only: check that the address leads to the primary. The library reconnects until it does.';
export const NO_TABLE =
  'Create the table in a migration, with the statement that ddl() of nest-redis-lock/sql returns.';
const RIGHTS = 'Give its user the rights SELECT, INSERT, UPDATE and DELETE on the table.';
const ROW_SECURITY =
  'Row level security of the table must not apply to it: ALTER TABLE ... DISABLE ROW LEVEL SECURITY.';
/** For a user without rights on a table, MySQL does not reveal whether the table exists. */
export const NO_TABLE_OR_RIGHTS = `${RIGHTS} If the table does not exist: ${NO_TABLE}`;
export const WRONG_PASSWORD = 'Correct the user name and the password.';
/** The sessions of locks use READ COMMITTED, under which MySQL refuses writes to a binary log in STATEMENT format. */
export const BINARY_LOG =
  'Set binlog_format of the server to ROW or MIXED: with STATEMENT it refuses each write under READ COMMITTED, which locks need.';

/** Advice by the code of an error. */
const ADVICE: Readonly<Record<string, string>> = {
  '25006': READ_ONLY,
  '42P01': NO_TABLE,
  '42501': `${RIGHTS} ${ROW_SECURITY}`,
  '42703': 'The table differs from ddl() of nest-redis-lock/sql: compare its columns.',
  '28P01': WRONG_PASSWORD,
  '28000': 'Correct the user name and the password, or pg_hba.conf.',
  '3D000': 'Correct the name of the database.',
  '53300':
    'Raise max_connections of the server, or lower the pools: each process has its own connections for its locks.',
  '55P03': 'Another session holds the row of that lock, or the table, for a long time: end it, or its transaction.',
  ER_TABLEACCESS_DENIED_ERROR: NO_TABLE_OR_RIGHTS,
  ER_BINLOG_STMT_MODE_AND_ROW_ENGINE: BINARY_LOG,
};

/** The MySQL names of these errors. */
const POSTGRES_CODES: Readonly<Record<string, string>> = {
  ER_OPTION_PREVENTS_STATEMENT: '25006',
  ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION: '25006',
  ER_READ_ONLY_MODE: '25006',
  ER_NO_SUCH_TABLE: '42P01',
  ER_BAD_FIELD_ERROR: '42703',
  ER_ACCESS_DENIED_ERROR: '28P01',
  ER_BAD_DB_ERROR: '3D000',
  ER_NO_DB_ERROR: '3D000',
  ER_DBACCESS_DENIED_ERROR: '3D000',
  ER_CON_COUNT_ERROR: '53300',
  ER_LOCK_WAIT_TIMEOUT: '55P03',
};

const DATA_ADVICE =
  'Other keys are not affected. Either the database cannot store that key, or another program wrote its row: use another key, or delete that row.';

/** Only for applications: the command line has no such option. */
export const TOO_BUSY =
  'Check that the server can be reached. If it can, it is too busy for commandTimeoutMs: raise that option.';
const NO_TLS = 'The server has no TLS: set it up there, or remove TLS from the URL or the options (ssl, sslmode).';
const NOT_TRUSTED =
  'Its certificate is not trusted: give the certificate of its authority as ca in the option ssl, or in NODE_EXTRA_CA_CERTS, and the name in ' +
  'the certificate as host. With mysql2, verifyIdentity: false in ssl accepts any name.';
const EXPIRED = 'Its certificate, or the certificate of its authority, has expired: renew it.';
const CERTIFICATE = /^HANDSHAKE_SSL_ERROR$|SELF_SIGNED_CERT|^UNABLE_TO_(GET|VERIFY)|^ERR_TLS_CERT|^CERT_/;

/** Creates the error of a database, with advice. @param code the code of the database's error */
export function sqlError(name: string, problem: string, code?: string, isOfKey = false): NodeError {
  return new NodeError(name, problem, adviceOn(problem, code) ?? (isOfKey ? DATA_ADVICE : undefined), isOfKey);
}

function adviceOn(problem: string, code = ''): string | undefined {
  if (/no answer within|timeout expired|connection timeout|ETIMEDOUT/i.test(problem)) return TOO_BUSY;
  if (/does not support (SSL|secure) connection/i.test(problem)) return NO_TLS;
  if (problem.includes('certificate has expired')) return EXPIRED;
  if (CERTIFICATE.test(code)) return NOT_TRUSTED;
  return ADVICE[POSTGRES_CODES[code] ?? code];
}

/** The application starts, but the lock table does not exist. */
export class NoTableError extends LockOptionsError {
  /**
   * @param found sentences about the current state
   * @param create the beginning of the advice
   * @param statement the statement that creates the table
   */
  constructor(
    private readonly found: string,
    private readonly create: 'Create it' | 'If not, create it',
    private readonly statement: string,
    how = 'in a migration',
  ) {
    super(`${found} ${create} ${how}: ${statement};`);
  }

  /** Returns the same error with another way to create the table. */
  otherwise(how: string): NoTableError {
    return new NoTableError(this.found, this.create, this.statement, how);
  }
}
