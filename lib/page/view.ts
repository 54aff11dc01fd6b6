import type { LockPing } from '../api/diagnosis.js';
import type { LockHolder } from '../api/holder.js';
import type { LockInfo, LockList } from '../api/lock.js';
import { printable } from '../api/printable.js';
import { hostName } from '../compose/process-name.js';

/** How many locks are shown at most. */
export const MOST_ROWS = 500;
/** How much of a key is shown, in characters: all of one that the library can have made. */
const LONGEST_KEY = 1_024;

/** A process as the page shows it: without its owner value, with which the lock could be released. */
interface ShownProcess {
  host?: string;
  pid?: number;
  isThis?: boolean;
}

/** What the page gets, as JSON; page-script.ts reads it. Times are milliseconds since 1970. */
interface Shown {
  /** Name of the registration. */
  registration: string;
  /** Whether locks can be taken. */
  ping: Pick<LockPing, 'available' | 'nodes'> & { problems: string[] };
  /** Why the locks could not be listed. */
  problem?: string;
  /** Why there may be more locks than rows: there are as many rows as fit, or the search was cut short, or a server did not answer. */
  incomplete?: 'rows' | 'time';
  rows?: {
    key: string;
    /** The key as one line that only shows it, where that is another text. */
    text?: string;
    label?: string;
    holder: ShownProcess;
    since?: number;
    remainingMs: number;
    keptUntil?: number;
    token?: number;
    /** The processes in the queue of the store, in their order: calls that wait inside the process of the holder are not among them. */
    waiting: ShownProcess[];
    /** How many calls of this process wait. */
    waitingHere: number;
    /** Names the holding in a request to release it: only for viewers who may do that. */
    digest?: string;
  }[];
}

/** What all viewers of a list see at one time. */
export class View {
  #forReaders?: string;
  #forReleasers?: string;

  constructor(private readonly shown: Shown) {}

  /** As JSON, made once for all viewers of a kind. @param mayRelease whether the viewer may release locks by force */
  json(mayRelease: boolean): string {
    if (mayRelease) return (this.#forReleasers ??= JSON.stringify(this.shown));
    const { rows, ...others } = this.shown;
    return (this.#forReaders ??= JSON.stringify({
      ...others,
      rows: rows?.map((row) => ({ ...row, digest: undefined })),
    }));
  }
}

/** @param labels those that are known, by key */
export function viewOf(listed: LockList | Error, ping: LockPing, labels?: ReadonlyMap<string, string>): View {
  const { registration, available, nodes, problems } = ping;
  const servers = { available, nodes, problems: problems.map(({ message }) => message) };
  if (listed instanceof Error)
    return new View({ registration, ping: servers, problem: printable(listed.message, Infinity) });
  const incomplete = listed.complete ? undefined : listed.locks.length < MOST_ROWS ? 'time' : 'rows';
  const rows = listed.locks.map((lock) => rowOf(lock, labels?.get(lock.key)));
  return new View({ registration, ping: servers, incomplete, rows });
}

function rowOf(lock: LockInfo, label?: string) {
  const { key, holder, since, remainingMs, keptUntil, fencingToken: token, waitingProcesses, waiters, digest } = lock;
  const text = printable(key, LONGEST_KEY);
  return {
    key,
    text: text === key ? undefined : text,
    label: label === undefined ? undefined : printable(label),
    holder: processOf(holder),
    since: since?.getTime(),
    remainingMs,
    keptUntil: keptUntil?.getTime(),
    token,
    waiting: waitingProcesses.map(processOf),
    waitingHere: waiters,
    digest,
  };
}

function processOf({ host, pid }: LockHolder): ShownProcess {
  return { host, pid, isThis: (pid === process.pid && host === hostName()) || undefined };
}
