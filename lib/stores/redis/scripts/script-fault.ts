import type { CommandFault } from '../client/redis-client.js';

/** The reason why an operation was not performed or not confirmed. */
export class ScriptFault extends Error {
  constructor(
    message: string,
    /** It was sent and not refused, so it may have taken effect, or may still do so. */
    readonly mayHaveRun: boolean,
    /** Whether the connection failed or the refusal is temporary, so that a retry may succeed. */
    readonly disconnected = false,
    /** The server has answered with an error. */
    readonly isRefused = false,
    /** The error concerns only the lock of this operation. */
    readonly isOfKey = false,
  ) {
    super(message);
  }

  /** Whether the server is a replica, according to its error or the error of a script. */
  get isReadOnly(): boolean {
    return /\bREADONLY /.test(this.message);
  }
}

/**
 * Temporary refusals: another server runs the command, or this one will in a moment. No part of the script has run: servers change their
 * role only between scripts, so the first write was refused, too. A full memory or disk is not temporary, since it takes an operator.
 */
const TEMPORARY_REFUSALS = /\b(TRYAGAIN|CLUSTERDOWN|LOADING|MASTERDOWN|READONLY) /;

/** Converts the fault of a command into the fault of its script. */
export function scriptFaultOf({ message, kind }: CommandFault): ScriptFault {
  if (kind !== 'refused') return new ScriptFault(message, true, kind === 'disconnected');
  if (TEMPORARY_REFUSALS.test(message)) return new ScriptFault(message, false, true, true);
  // The error names the script if it failed halfway. A call that Redis refused beforehand (NOAUTH, NOPERM, ...) has not run.
  return new ScriptFault(message, message.includes('user_script'), false, true);
}

/**
 * Creates the fault of a script that caught an error before it changed anything. Only an error of the lock itself begins with
 * `WRONGTYPE`, since scripts put the name of a counter before its error.
 */
export function caughtFaultOf(message: string): ScriptFault {
  return new ScriptFault(message, false, TEMPORARY_REFUSALS.test(message), true, message.startsWith('WRONGTYPE '));
}
