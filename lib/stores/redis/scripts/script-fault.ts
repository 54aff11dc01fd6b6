import type { CommandFault } from '../client/redis-client.js';

/** Why an operation was not done, or not confirmed. */
export class ScriptFault extends Error {
  constructor(
    message: string,
    /** It was sent and not refused, so it may have taken, or may yet take, effect. */
    readonly mayHaveRun: boolean,
    /** The connection failed, or the server refuses for a moment: the same command may pass when it is sent again. */
    readonly disconnected = false,
    /** The server has answered with an error. */
    readonly isRefused = false,
    /** Only the lock that the operation is for is refused. */
    readonly isOfKey = false,
  ) {
    super(message);
  }

  /** Whether the server is a replica: it says so itself, or in the error of a script. */
  get isReadOnly(): boolean {
    return /\bREADONLY /.test(this.message);
  }
}

/**
 * Refusals of a server that runs the command elsewhere, or in a moment. Nothing of a script has run: a server changes its role between
 * scripts, so the first write was refused like all others. A full memory or disk is not among these: it takes an operator to end that.
 */
const TEMPORARY_REFUSALS = /\b(TRYAGAIN|CLUSTERDOWN|LOADING|MASTERDOWN|READONLY) /;

/** Turns the fault of a command into that of its script. */
export function scriptFaultOf({ message, kind }: CommandFault): ScriptFault {
  if (kind !== 'refused') return new ScriptFault(message, true, kind === 'disconnected');
  if (TEMPORARY_REFUSALS.test(message)) return new ScriptFault(message, false, true, true);
  // Redis names a script that failed halfway; a call that it refuses beforehand (NOAUTH, NOPERM, ...) has not run.
  return new ScriptFault(message, message.includes('user_script'), false, true);
}

/**
 * The fault of a script that has caught an error, and has changed nothing. Only the lock itself has an error that begins with
 * `WRONGTYPE`: scripts put the name of a counter before its error.
 */
export function caughtFaultOf(message: string): ScriptFault {
  return new ScriptFault(message, false, TEMPORARY_REFUSALS.test(message), true, message.startsWith('WRONGTYPE '));
}
