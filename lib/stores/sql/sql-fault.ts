/** Why a statement has no answer. */
export class SqlFault {
  constructor(
    /** Without credentials: part of an error message. */
    readonly problem: string,
    /** It may have taken, or may yet take, effect. */
    readonly mayHaveRun: boolean,
    /** The connection failed, not the statement. */
    readonly disconnected = false,
    /** What the database calls the error. */
    readonly code?: string,
    /** It is an error of the data of one lock: the statement may succeed for others. */
    readonly isOfKey = false,
  ) {}
}

/** Errors that a statement which is sent once more at once may not have: it lost a race with another one, and was rolled back. */
const RETRYABLE_ERRORS = new Set(['40001', '40P01', 'ER_LOCK_DEADLOCK']);
/** Another session holds the table, or a row that this one would insert, and has for a while. */
const ROW_LOCKED_ERRORS = new Set(['55P03', 'ER_LOCK_WAIT_TIMEOUT']);
/** Classes of SQLSTATE: a value, a constraint, a check of a view, the length of a key in an index, what a trigger raises. */
const DATA_ERRORS = /^(22|23|44|45|P0)|^54000$/;
/** MySQL has no SQLSTATE for it. */
const CHECK_VIOLATED = 'ER_CHECK_CONSTRAINT_VIOLATED';
/** It is a replica, or refuses to write. */
const READ_ONLY_ERRORS = new Set([
  '25006',
  'ER_OPTION_PREVENTS_STATEMENT',
  'ER_CANT_EXECUTE_IN_READ_ONLY_TRANSACTION',
  'ER_READ_ONLY_MODE',
]);
/** The connection ends: by an administrator, since the server stops, or starts, or by an error of the network, of TLS or of its stream. */
const CONNECTION_ERRORS =
  /^(57P0\d|08...|E[A-Z]+|ERR_\w+|PROTOCOL_\w+|ER_(SERVER_SHUTDOWN|CONNECTION_KILLED|NET_\w+|CLIENT_INTERACTION_TIMEOUT))$/;

/** Whether the statement may succeed if each of its operations is sent alone, once more. */
export function isRetryable({ code }: SqlFault): boolean {
  return code !== undefined && RETRYABLE_ERRORS.has(code);
}

/** Whether one of its operations may have failed all: the others may succeed if each is sent alone. */
export function isWorthSplitting({ code, isOfKey }: SqlFault): boolean {
  return isOfKey || (code !== undefined && ROW_LOCKED_ERRORS.has(code));
}

/** Whether the server only reads. @param code what the database calls the error */
export function isReadOnly(code: string): boolean {
  return READ_ONLY_ERRORS.has(code);
}

/** The error of an operation whose statements before it have taken effect: it does not undo them. */
export class HalfDone extends Error {
  constructor(cause: unknown) {
    super('', { cause });
  }
}

/** Reads the error of a driver. @param isEnded whether the connection has ended meanwhile */
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
  // An error of the statement has rolled it back, as it is a transaction of its own.
  const isOfKey = !disconnected && (DATA_ERRORS.test(String(sqlState)) || name === CHECK_VIOLATED);
  return new SqlFault(problem.replace(/\.$/, ''), disconnected, disconnected, name, isOfKey);
}
