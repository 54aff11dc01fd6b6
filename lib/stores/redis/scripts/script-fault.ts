import type { CommandFault } from '../client/redis-client.js';

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

/** What a fault of a command means for the script that it was to run. */
export function scriptFaultOf({ message, kind }: CommandFault): ScriptFault {
  if (kind !== 'refused') return new ScriptFault(message, true, kind === 'disconnected');
  // Redis names the script that failed in the middle; a call that it refuses beforehand (NOAUTH, NOPERM, ...) has not run.
  return new ScriptFault(message, message.includes('user_script'));
}
