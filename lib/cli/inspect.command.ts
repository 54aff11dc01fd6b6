import { describeHolder } from '../api/holder.js';
import type { HolderInfo, LockInfo, WaitingProcess } from '../api/lock.js';
import { printable } from '../api/printable.js';
import { EXIT, type Action } from './command.js';
import { TO_LOOK, withLocks } from './open.js';
import { duration, json, plural, whole, wrap } from './text.js';

/** Shows who holds a lock. */
export const inspect: Action = (call) =>
  withLocks(call, TO_LOOK, async (locks) => {
    const { key, options, terminal } = call;
    const info = await locks.inspect(key);
    if (options.json) terminal.print(json(info && withoutOwn(info)));
    else terminal.print(info ? wrap(textOf(info), terminal.columns) : `${whole(key)} is free`);
    return info ? EXIT.ok : EXIT.no;
  });

/** A held lock without the count of the calls of this process that wait for it, which are none, and say nothing of others. */
export function withoutOwn(info: LockInfo): Omit<LockInfo, 'waiters'> {
  return { ...info, waiters: undefined } as Omit<LockInfo, 'waiters'>; // JSON leaves it out
}

/** It is not known that nobody waits, where nobody is shown. */
const NONE_SEEN = 'no process in the queue';
const NOT_SEEN = "; calls inside the holder's process are not seen";

/** A held lock, one line for each thing that is known of it; where several can hold it, one line for each holder. */
export function textOf(info: LockInfo): string {
  const fields = [
    ['scope', info.scope && printable(info.scope)],
    ...(info.mode === 'exclusive' ? fieldsOf(info.holders[0]!) : fieldsOfSeveral(info)),
    ['kept until', info.keptUntil?.toISOString()],
    ['token', info.fencingToken],
    ['waiting', waitingIn(info)],
  ].filter(([, value]) => value !== undefined);
  return [whole(info.key), ...fields.map(([name, value]) => `  ${String(name).padEnd(10)}  ${value}`)].join('\n');
}

function waitingIn({ holders, waitingProcesses }: LockInfo): string | undefined {
  const behind = holders.flatMap(({ waiters }) => (waiters ? `behind the holder: ${plural(waiters, 'call')}` : []));
  const shown = [...behind, ...(waitingProcesses ?? []).map(processInWords)].join(', ');
  const areSeen = holders.every(({ holder }) => holder.detached);
  return shown || (waitingProcesses && (areSeen ? NONE_SEEN : NONE_SEEN + NOT_SEEN));
}

function fieldsOf({ holder, digest, since, remainingMs }: HolderInfo): [string, string | undefined][] {
  return [
    ['holder', describeHolder(holder)],
    ['digest', digest],
    ['since', since?.toISOString()],
    ['remaining', duration(remainingMs)],
  ];
}

function fieldsOfSeveral(info: LockInfo): [string, string | undefined][] {
  return [['mode', modeOf(info)], ...info.holders.map((each): [string, string] => ['holder', inOneLine(each)])];
}

function processInWords(process: WaitingProcess): string {
  const { waiters } = process;
  return describeHolder(process) + (waiters === undefined ? '' : ` (${plural(waiters, 'call')})`);
}

function inOneLine({ holder, digest, since, remainingMs, permits }: HolderInfo): string {
  const known = [
    permits && plural(permits, 'permit'),
    `digest ${digest}`,
    since && `since ${since.toISOString()}`,
    `remaining ${duration(remainingMs)}`,
  ];
  return `${describeHolder(holder)}: ${known.filter(Boolean).join(', ')}`;
}

/** How a lock is held that several can hold; undefined for an exclusive one. */
export function modeOf({ mode, permits }: LockInfo): string | undefined {
  if (mode === 'exclusive') return undefined;
  return permits ? `${permits.held} of ${permits.limit} permits` : mode;
}
