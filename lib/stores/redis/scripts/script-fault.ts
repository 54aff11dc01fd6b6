import type { CommandFault } from '../client/redis-client.js';

/** Why an operation was not done, or not confirmed. */
export class ScriptFault extends Error {
  constructor(
    message: string,
    /** It was sent and not refused, so it may have taken, or may yet take, effect. */
    readonly mayHaveRun: boolean,
    /** The connection failed, not the command: the same command may pass on the next one. */
    readonly disconnected = false,
    /** The server has answered with an error. */
    readonly isRefused = false,
  ) {
    super(message);
  }

  /** Whether the server is a replica: it says so itself, or in the error of a script. */
  get isReadOnly(): boolean {
    return /\bREADONLY /.test(this.message);
  }
}

/** Turns the fault of a command into that of its script. */
export function scriptFaultOf({ message, kind }: CommandFault): ScriptFault {
  if (kind !== 'refused') return new ScriptFault(message, true, kind === 'disconnected');
  // Redis names a script that failed halfway; a call that it refuses beforehand (NOAUTH, NOPERM, ...) has not run.
  return new ScriptFault(message, message.includes('user_script'), false, true);
}
