import type { LockPing } from '../api/diagnosis.js';
import type { LockHolder } from '../api/holder.js';
import type { HolderInfo, LockInfo, LockList } from '../api/lock.js';
import { printable } from '../api/printable.js';
import { hostName } from '../compose/process-name.js';

/** Maximum number of locks on the page. */
export const MAX_ROWS = 500;
/** Maximum number of holders that are shown for one lock. */
export const MAX_HOLDERS = 20;
/** Maximum length of a key on the page, in characters: no key of this library is longer. */
const MAX_KEY_LENGTH = 1_024;

/** The state of a list at one time, for all its viewers. */
export class View {
  #forReaders?: string;
  #forReleasers?: string;

  /** @param rows undefined if the locks could not be listed */
  constructor(
    private readonly head: object,
    private readonly rows?: Row[],
  ) {}

  /** Returns the view as JSON, made once for all viewers of a kind. @param mayRelease whether the viewer may release locks by force */
  json(mayRelease: boolean): string {
    const { head, rows } = this;
    if (mayRelease) return (this.#forReleasers ??= JSON.stringify({ ...head, rows }));
    const readable = rows?.map((row) => ({ ...withoutDigest(row), holders: row.holders?.map(withoutDigest) }));
    return (this.#forReaders ??= JSON.stringify({ ...head, rows: readable }));
  }
}

/**
 * Makes the view that page-script.ts reads as JSON.
 * @param labels the known labels by key
 */
export function viewOf(listed: LockList | Error, ping: LockPing, labels?: ReadonlyMap<string, string>): View {
  const { registration, available, nodes } = ping;
  const problems = ping.problems.map(({ message }) => message);
  const head = { registration, ping: { available, nodes, problems } };
  if (listed instanceof Error) return new View({ ...head, problem: printable(listed.message, Infinity) });
  // Why locks may be missing. `rows`: the list is full. `time`: the search was cut short, or a server did not answer.
  const incomplete = listed.complete ? undefined : listed.locks.length < MAX_ROWS ? 'time' : 'rows';
  const rows = listed.locks.map((lock) => rowOf(lock, labels?.get(lock.key))).sort(byWaitingAndAge);
  return new View({ ...head, incomplete }, rows);
}

/** Sorts locks that calls wait for first, then the oldest. It ignores the number of calls: otherwise rows would move all the time. */
function byWaitingAndAge(a: Row, b: Row): number {
  const oldestFirst = (a.since ?? Number.MAX_VALUE) - (b.since ?? Number.MAX_VALUE);
  return Number(isWaitedFor(b)) - Number(isWaitedFor(a)) || oldestFirst;
}

function isWaitedFor({ waiting = [], behind = 0, waitingHere }: Row): boolean {
  return waiting.length + behind + waitingHere > 0;
}

function withoutDigest<T extends { digest?: string }>(shown: T): T {
  return { ...shown, digest: undefined };
}

type Row = ReturnType<typeof rowOf>;

/** Times are milliseconds, or milliseconds since 1970. */
function rowOf(lock: LockInfo, label?: string) {
  const {
    key,
    scope,
    mode,
    permits,
    holder,
    holders,
    since,
    keptUntil,
    fencingToken: token,
    waitingProcesses,
    waiters,
  } = lock;
  const isExclusive = mode === 'exclusive';
  const text = printable(scope === undefined ? key : key.slice(key.indexOf('/') + 1), MAX_KEY_LENGTH);
  return {
    key,
    scope: scope === undefined ? undefined : printable(scope),
    /** The key without its scope, with unsafe characters escaped, if that differs from the key. */
    text: text === key ? undefined : text,
    label: label === undefined ? undefined : printable(label),
    holder: processOf(holder),
    /** For a lock that several can hold: its mode, the first holders, and the number of further ones. */
    mode: isExclusive ? undefined : mode,
    permits,
    holders: isExclusive ? undefined : holders.slice(0, MAX_HOLDERS).map(partOf),
    more: isExclusive ? undefined : Math.max(0, holders.length - MAX_HOLDERS),
    since: since?.getTime(),
    /** Milliseconds until all of its leases have expired. */
    remainingMs: Math.max(...holders.map((each) => each.remainingMs)),
    keptUntil: keptUntil?.getTime(),
    token,
    /** The processes in the queue of the store, if it has one, in order, with the number of their waiting calls. */
    waiting: waitingProcesses?.map((each) => ({ ...processOf(each), calls: each.waiters })),
    /** The number of calls that wait behind an exclusive lock in the process of its holder, if another process reported it. */
    behind: processOf(holder).isThis ? undefined : holders[0]!.waiters,
    /** The number of calls of this process that wait. */
    waitingHere: waiters,
    /** Identifies the holding in a request to release it, for viewers who may release. Each of several holders has its own. */
    digest: isExclusive ? lock.digest : undefined,
  };
}

function partOf({ holder, permits, since, digest }: HolderInfo) {
  return { ...processOf(holder), permits, since: since?.getTime(), digest };
}

/** Returns a process without its owner value, which would allow a release. */
function processOf({ host, pid, detached, note }: LockHolder) {
  const isThis = (!detached && pid === process.pid && host === hostName()) || undefined;
  return { host, pid, isThis, detached, note: note === undefined ? undefined : printable(note) };
}
