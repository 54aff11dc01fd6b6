import { describeHolder } from '../api/holder.js';
import type { HolderInfo, LockInfo, WaitingProcess } from '../api/lock.js';
import { printable } from '../api/printable.js';
import { EXIT, type Action } from './command.js';
import { READ_ONLY_SETTINGS, withLocks } from './open.js';
import { duration, json, plural, whole, wrap } from './text.js';

/** Shows who holds a lock. */
export const inspect: Action = (call) =>
  withLocks(call, READ_ONLY_SETTINGS, async (locks) => {
    const { key, options, terminal } = call;
    const info = await locks.inspect(key);
    if (options.json) terminal.print(json(info && withoutOwn(info)));
    else terminal.print(info ? wrap(textOf(info), terminal.columns) : `${whole(key)} is free`);
    return info ? EXIT.ok : EXIT.no;
  });

/** Removes the count of waiting calls in this process: it is always 0, and says nothing about other processes. */
export function withoutOwn(info: LockInfo): Omit<LockInfo, 'waiters'> {
  return { ...info, waiters: undefined } as Omit<LockInfo, 'waiters'>; // JSON leaves it out
}

/** An empty queue does not prove that no call waits. */
const NONE_SEEN = 'no process in the queue';
const NOT_SEEN = "; calls inside the holder's process are not visible";

/** Describes a held lock, one line for each field, or for each holder if several can hold it. */
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

/** Describes the mode of a lock that several can hold; undefined for an exclusive lock. */
export function modeOf({ mode, permits }: LockInfo): string | undefined {
  if (mode === 'exclusive') return undefined;
  return permits ? `${permits.held} of ${permits.limit} permits` : mode;
}
