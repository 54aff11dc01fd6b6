/** The reason why a statement has no answer. */
export class SqlFault {
  constructor(
    /** Part of an error message, without credentials. */
    readonly problem: string,
    /** It may have taken effect, or may still do so. */
    readonly mayHaveRun: boolean,
    /** The connection failed, not the statement. */
    readonly disconnected = false,
    /** The code of the database's error. */
    readonly code?: string,
    /** The error concerns the data of one lock: the statement may succeed for other locks. */
    readonly isOfKey = false,
  ) {}
}

/** A statement with one of these errors lost a race with another one, and was rolled back. A retry may succeed at once. */
const RETRYABLE_ERRORS = new Set(['40001', '40P01', 'ER_LOCK_DEADLOCK']);
/** Another session has locked the table, or a row that this statement would insert, for a while. */
const ROW_LOCKED_ERRORS = new Set(['55P03', 'ER_LOCK_WAIT_TIMEOUT']);
/** The statement took too long or was cancelled, or the server lacks resources for the moment. */
const BUSY_ERRORS = /^(57014|53...|ER_STATEMENT_TIMEOUT|ER_QUERY_(TIMEOUT|INTERRUPTED))$/;
/** Classes of SQLSTATE for an invalid value, a constraint, the check of a view, an index key that is too long, and errors of triggers. */
const DATA_ERRORS = /^(22|23|44|45|P0)|^54000$/;
/** MySQL has no SQLSTATE for a violated check. */
const CHECK_VIOLATED = 'ER_CHECK_CONSTRAINT_VIOLATED';
/** The server is a replica, or refuses writes. */
const READ_ONLY_ERRORS = new Set([
  '25006',
  'ER_OPTION_PREVENTS_STATEMENT',
  'ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION',
  'ER_READ_ONLY_MODE',
]);
/** Errors that end the connection: by an administrator, a stop or start of the server, the network, or TLS. */
const CONNECTION_ERRORS =
  /^(57P0\d|08...|E[A-Z]+|ERR_\w+|PROTOCOL_\w+|ER_(SERVER_SHUTDOWN|CONNECTION_KILLED|NET_\w+|CLIENT_INTERACTION_TIMEOUT))$/;

/** Whether the operations of a statement may succeed if each is sent again alone. */
export function isRetryable({ code }: SqlFault): boolean {
  return code !== undefined && RETRYABLE_ERRORS.has(code);
}

/** Whether a single operation may have failed the whole statement, so that the others may succeed alone. */
export function isWorthSplitting({ code, isOfKey }: SqlFault): boolean {
  return isOfKey || (code !== undefined && ROW_LOCKED_ERRORS.has(code));
}

/** Whether the same statement may succeed later, even if nobody changes the database. */
export function isPassing({ code, disconnected }: SqlFault): boolean {
  const isForNow = (name: string) =>
    RETRYABLE_ERRORS.has(name) || ROW_LOCKED_ERRORS.has(name) || BUSY_ERRORS.test(name);
  return disconnected || isForNow(code ?? '');
}

/** Whether the server is read-only. @param code the code of the database's error */
export function isReadOnly(code: string): boolean {
  return READ_ONLY_ERRORS.has(code);
}

/** The error of an operation with several statements, of which the first ones have taken effect. */
export class HalfDone extends Error {
  constructor(cause: unknown) {
    super('', { cause });
  }
}

/** Converts the error of a driver. @param isEnded whether the connection has ended */
export function faultOf(error: unknown, isEnded: boolean): SqlFault {
  if (error instanceof HalfDone) {
    const { problem, disconnected, code, isOfKey } = faultOf(error.cause, isEnded);
    return new SqlFault(problem, true, disconnected, code, isOfKey);
  }
  const {
    code,
    sqlState = code,
    message = String(error),
  } = error as { code?: unknown; sqlState?: unknown; message?: string };
  const name = typeof code === 'string' ? code : undefined;
  const disconnected = isEnded || name === undefined || CONNECTION_ERRORS.test(name);
  const problem = name !== undefined && !disconnected ? `${message} (${name})` : message;
  // Each statement is a separate transaction, so an error has rolled it back.
  const isOfKey = !disconnected && (DATA_ERRORS.test(String(sqlState)) || name === CHECK_VIOLATED);
  return new SqlFault(problem.replace(/\.$/, ''), disconnected, disconnected, name, isOfKey);
}
