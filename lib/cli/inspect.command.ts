import { describeHolder } from '../api/holder.js';
import type { LockInfo } from '../api/lock.js';
import type { Action } from './command.js';
import { EXIT } from './exit-codes.js';
import { openToLook } from './open.js';
import { duration, json, whole, wrap } from './text.js';

/** Shows who holds a lock. */
export const inspect: Action = async (call) => {
  const {
    args: [key = ''],
    options,
    terminal,
  } = call;
  const locks = await openToLook(call);
  try {
    const info = await locks.inspect(key);
    if (options.json) terminal.print(json(info && withoutOwn(info)));
    else if (info) for (const line of linesOf(info)) terminal.print(wrap(line, terminal.columns));
    else terminal.print(`${whole(key)} is free`);
    return info ? EXIT.ok : EXIT.no;
  } finally {
    await locks.close();
  }
};

/** A held lock without the count of the calls of this process that wait for it, which are none, and say nothing of others. */
export function withoutOwn(info: LockInfo): Omit<LockInfo, 'waiters'> {
  return { ...info, waiters: undefined } as Omit<LockInfo, 'waiters'>; // JSON leaves it out
}

/** It is not known that nobody waits. */
const NONE_SEEN = "no process in the queue; calls inside the holder's process are not seen";

/** A held lock, one line for each thing that is known of it. */
export function linesOf({
  key,
  holder,
  digest,
  since,
  remainingMs,
  keptUntil,
  fencingToken,
  waitingProcesses,
}: LockInfo): string[] {
  const known = {
    holder: describeHolder(holder),
    digest,
    since: since?.toISOString(),
    remaining: duration(remainingMs),
    'kept until': keptUntil?.toISOString(),
    token: fencingToken,
    waiting: waitingProcesses.map((each) => describeHolder(each)).join(', ') || NONE_SEEN,
  };
  const fields = Object.entries(known).filter(([, value]) => value !== undefined);
  return [whole(key), ...fields.map(([name, value]) => `  ${name.padEnd(10)}  ${value}`)];
}
