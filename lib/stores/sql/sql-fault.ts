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
  ) {}
}

/** Errors that a statement which is sent once more at once may not have: it lost a race with another one, and was rolled back. */
const OF_A_RACE = new Set(['40001', '40P01']);
/** Another session holds the row, and has for a while. */
const ROW_IS_HELD = '55P03';
/** The connection ends: by an administrator, or since the server stops, or starts. */
const OF_THE_CONNECTION = /^(57P0\d|08...|E[A-Z]+)$/;

/** Whether the statement may succeed if each of its operations is sent alone, once more. */
export function isRace({ code }: SqlFault): boolean {
  return code !== undefined && OF_A_RACE.has(code);
}

/** Whether one of its operations has waited in vain for a row that another session holds: the others may succeed if each is sent alone. */
export function ofHeldRow({ code }: SqlFault): boolean {
  return code === ROW_IS_HELD;
}

/** Reads the error of a driver. @param isEnded whether the connection has ended meanwhile */
export function faultOf(error: unknown, isEnded: boolean): SqlFault {
  const { code, message = String(error) } = error as { code?: unknown; message?: string };
  const name = typeof code === 'string' ? code : undefined;
  const disconnected = isEnded || name === undefined || OF_THE_CONNECTION.test(name);
  const problem = name !== undefined && !disconnected ? `${message} (${name})` : message;
  // An error of the statement has rolled it back, as it is a transaction of its own.
  return new SqlFault(problem.replace(/\.$/, ''), disconnected, disconnected, name);
}
