import { problemOf } from '../client/problem-of.js';
import { isReplyError } from '../client/reply-error.js';

/** Why an operation was not done. */
export class ScriptFault extends Error {
  constructor(
    message: string,
    /** It was sent and not refused, so it may have taken, or may yet take, effect. */
    readonly mayHaveRun: boolean,
    /** The connection failed, not the command: the same command may pass on the next one. */
    readonly disconnected = false,
  ) {
    super(message);
  }

  /** The server is a replica; by itself, or in the error of a script. */
  get isReadOnly(): boolean {
    return /\bREADONLY /.test(this.message);
  }
}

/** What became of a command that the client rejected with this error. */
export function faultOf(error: unknown): ScriptFault {
  if (error instanceof ScriptFault) return error;
  const problem = problemOf(error);
  if (!isReplyError(error)) {
    return new ScriptFault(problem, true, !isClientTimeout(error));
  }
  // Redis names the script that failed in the middle; a call that it refuses beforehand (NOAUTH, NOPERM, ...) has not run.
  return new ScriptFault(problem, problem.includes('user_script'));
}

/** By the option `commandTimeout`: the client does not tell when the server answers after all. */
export function isClientTimeout(error: unknown): boolean {
  return error instanceof Error && error.message === 'Command timed out';
}
