import type { LockPing } from '../api/diagnosis.js';
import type { LockHolder } from '../api/holder.js';
import type { LockInfo, LockList } from '../api/lock.js';
import { hostName } from '../compose/process-name.js';

/** How many locks are shown at most. */
export const MOST_ROWS = 500;

/** A process as the page shows it: without its owner value, with which the lock could be released. */
interface ShownProcess {
  host?: string;
  pid?: number;
  isThis?: boolean;
}

/** What the page gets, as JSON; page-script.ts reads it. Times are milliseconds since 1970. */
interface Shown {
  /** Whether locks can be had. */
  ping: Pick<LockPing, 'available' | 'nodes'> & { problems: string[] };
  /** Why the locks could not be listed. */
  problem?: string;
  /** Why there may be more locks than rows: there are as many rows as fit, or the search was cut short, or a server did not answer. */
  incomplete?: 'rows' | 'time';
  rows?: {
    key: string;
    label?: string;
    holder: ShownProcess;
    since?: number;
    remainingMs: number;
    keptUntil?: number;
    token?: number;
    /** In their order. */
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
  const { available, nodes, problems } = ping;
  const servers = { available, nodes, problems: problems.map(({ message }) => message) };
  if (listed instanceof Error) return new View({ ping: servers, problem: listed.message });
  const incomplete = listed.complete ? undefined : listed.locks.length < MOST_ROWS ? 'time' : 'rows';
  const rows = listed.locks.map((lock) => rowOf(lock, labels?.get(lock.key)));
  return new View({ ping: servers, incomplete, rows });
}

function rowOf(lock: LockInfo, label?: string) {
  const { key, holder, since, remainingMs, keptUntil, fencingToken: token, waitingProcesses, waiters, digest } = lock;
  return {
    key,
    label,
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
