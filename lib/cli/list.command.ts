import { setTimeout as sleep } from 'node:timers/promises';
import { describeHolder, describeHolders } from '../api/holder.js';
import type { LockInfo, LockList } from '../api/lock.js';
import { printable } from '../api/printable.js';
import { EXIT, type Action, type Call } from './command.js';
import { countOf } from './command-line.js';
import { modeOf, withoutOwn } from './inspect.command.js';
import { READ_ONLY_SETTINGS, withLocks } from './open.js';
import { duration, json, plural, table, whole } from './text.js';

/** Time limit of the search, in milliseconds: a person can wait longer than a request. */
const BUDGET_MS = 10_000;
const STOPPING = ['SIGINT', 'SIGTERM'] as const;
const CLEAR_SCREEN = '\u001b[2J\u001b[H';

const HEADER = ['KEY', 'HOLDER', 'DIGEST', 'HELD', 'LEFT', 'WAITING'];

/** Lists the locks that are held. */
export const list: Action = (call) => {
  const { pattern: match, options, terminal, limits } = call;
  const limit = countOf('limit', options.limit);
  return withLocks(call, READ_ONLY_SETTINGS, async (locks) => {
    const stopped = new AbortController();
    const stop = () => stopped.abort();
    if (options.watch) for (const signal of STOPPING) process.once(signal, stop);
    try {
      for (;;) {
        const found = await locks.list({ match, limit, budgetMs: BUDGET_MS });
        if (options.watch && terminal.columns !== undefined && !options.json) terminal.print(CLEAR_SCREEN);
        show(found, call);
        if (!options.watch) return EXIT.ok;
        await sleep(limits.watchMs, undefined, { signal: stopped.signal }).catch(() => {});
        if (stopped.signal.aborted) return EXIT.ok;
      }
    } finally {
      for (const signal of STOPPING) process.off(signal, stop);
    }
  });
};

function show({ locks, complete, scanned }: LockList, { options, terminal }: Call): void {
  if (options.json) {
    // With --watch, one line for each list, so that a program can read line by line.
    terminal.print(json({ locks: locks.map(withoutOwn), complete, scanned }, options.watch ? 0 : 2));
    return;
  }
  const { columns } = terminal;
  if (columns === undefined) for (const lock of locks) terminal.print(fieldsOf(lock).join('\t'));
  else if (locks.length > 0) for (const line of table([HEADER, ...locks.map(cellsOf)], columns)) terminal.print(line);
  else terminal.print('no lock is held');
  if (!complete)
    terminal.complain(
      'There may be more locks: use a narrower pattern, raise --limit, or run doctor to see whether all nodes answer.',
    );
}

/** Returns the columns of a lock for people. */
function cellsOf(lock: LockInfo): string[] {
  const { key, holder, holders, digest, since, remainingMs, keptUntil } = lock;
  const mode = modeOf(lock);
  return [
    printable(key),
    `${mode === undefined ? '' : `${mode}: `}${describeHolders(holder, holders.length - 1)}`,
    digest,
    keptUntil ? 'kept' : since ? duration(Math.max(0, Date.now() - since.getTime())) : '',
    duration(remainingMs),
    waitingInWords(lock),
  ];
}

/**
 * Returns the columns of a lock for programs: its first holder, with exact times, then the mode, the number of holders, and the
 * number of waiting calls.
 */
function fieldsOf(lock: LockInfo): (string | number)[] {
  const { key, mode, holders, holder, digest, since, remainingMs } = lock;
  const held = since?.toISOString() ?? '';
  const [waiting, calls] = [processesOf(lock) ?? 'unknown', callsOf(lock) ?? 'unknown'];
  return [whole(key), describeHolder(holder), digest, held, remainingMs, waiting, mode, holders.length, calls];
}

function waitingInWords(lock: LockInfo): string {
  const [processes, calls] = [processesOf(lock), callsOf(lock)];
  if (processes === undefined) return 'unknown';
  const inWords = `${processes} process${processes === 1 ? '' : 'es'}`;
  return calls === undefined ? inWords : `${inWords}, ${plural(calls, 'call')}`;
}

/**
 * Counts the processes that wait, as far as the store knows. Undefined instead of 0: a call behind a lock of its own process is in no
 * queue, and its process reports it only when it extends the lock.
 */
function processesOf(lock: LockInfo): number | undefined {
  return waitersOf(lock).length || undefined;
}

/** Counts the waiting calls of these processes, if all numbers are known. */
function callsOf(lock: LockInfo): number | undefined {
  const waiters = waitersOf(lock);
  if (waiters.length === 0 || waiters.includes(undefined)) return undefined;
  return waiters.reduce<number>((sum, count = 0) => sum + count, 0);
}

/** Returns the number of waiting calls for each process in the queue and for the holder's process. */
function waitersOf({ holders, waitingProcesses = [] }: LockInfo): (number | undefined)[] {
  return [...holders.filter(({ waiters }) => waiters), ...waitingProcesses].map(({ waiters }) => waiters);
}
