import { TAKING_MEMORY, WRITING } from './commands.js';
import { ReplyError } from './replies.js';

/** A state in which a server refuses commands. */
export type Refusal = 'oom' | 'loading' | 'readonly' | 'noscript' | 'busy';

export const READ_ONLY = new ReplyError("READONLY You can't write against a read only replica.");
export const OUT_OF_MEMORY = new ReplyError("OOM command not allowed when used memory > 'maxmemory'.");
const WHILE_LOADING = /^(INFO|HELLO|CLIENT|CONFIG|AUTH|SUBSCRIBE|UNSUBSCRIBE|QUIT)$/i;
const WHILE_BUSY = /^(HELLO|AUTH|QUIT)$/i;

/** The answer of a server in this state to a command of a client; undefined: its normal answer. */
export function refusalOf(state: Refusal | undefined, name: string): ReplyError | undefined {
  if (state === 'loading' && !WHILE_LOADING.test(name))
    return new ReplyError('LOADING Redis is loading the dataset in memory');
  if (state === 'busy' && !WHILE_BUSY.test(name))
    return new ReplyError('BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE.');
  if (state === 'noscript' && /^EVALSHA$/i.test(name))
    return new ReplyError('NOSCRIPT No matching script. Please use EVAL.');
  return undefined;
}

/** The same for a command that a script calls, or a client. */
export function refusalOfWrite(state: Refusal | undefined, name: string): ReplyError | undefined {
  if (state === 'oom' && TAKING_MEMORY.has(name.toUpperCase())) return OUT_OF_MEMORY;
  if (state === 'readonly' && WRITING.has(name.toUpperCase())) return READ_ONLY;
  return undefined;
}
