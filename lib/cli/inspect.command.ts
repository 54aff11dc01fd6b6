import { describeHolder } from '../api/holder.js';
import type { LockInfo } from '../api/lock.js';
import type { Action } from './command.js';
import { EXIT } from './exit-codes.js';
import { openToLook } from './open.js';
import { duration, json, printable, wrap } from './text.js';

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
    else terminal.print(`${printable(key)} is free`);
    return info ? EXIT.ok : EXIT.no;
  } finally {
    await locks.close();
  }
};

/** A held lock without the count of the calls of this process that wait for it: there are none. */
export function withoutOwn(info: LockInfo): Omit<LockInfo, 'waiters'> {
  return { ...info, waiters: undefined } as Omit<LockInfo, 'waiters'>; // JSON leaves it out
}

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
    holder: printable(describeHolder(holder)),
    digest,
    since: since?.toISOString(),
    remaining: duration(remainingMs),
    'kept until': keptUntil?.toISOString(),
    token: fencingToken,
    waiting: waitingProcesses.map((each) => printable(describeHolder(each))).join(', ') || undefined,
  };
  const fields = Object.entries(known).filter(([, value]) => value !== undefined);
  return [printable(key), ...fields.map(([name, value]) => `  ${name.padEnd(10)}  ${value}`)];
}
