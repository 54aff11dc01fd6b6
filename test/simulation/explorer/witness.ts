import type { SimulatedServer } from '../redis/simulated-server.js';
import type { Scheduler } from '../scheduler.js';

/** The errors of a run. */
export interface Violation {
  readonly rule: string;
  readonly text: string;
}

/**
 * A server may have lost locks, in microseconds; or, without a server, any of them has; or a lock was taken by force.
 */
export interface Loss {
  readonly at: number;
  until: number;
  readonly server?: SimulatedServer;
  /**
   * Whether the server does not know that it has lost locks, and grants them again: a node of a Redlock may do so, too.
   */
  readonly isUnnoticed?: boolean;
  readonly key?: string;
}

/** The properties that a lock reports. */
export interface HeldLock {
  readonly key: string;
  readonly owner: string;
  /** Permits have none. */
  readonly token?: number;
}

interface Crowd {
  readonly isOfReaders: boolean;
  /** Including holders whose time has passed. */
  readonly holders: readonly {
    readonly owner: string;
    /** Its end, by the clock of the server in milliseconds. */
    readonly end: number;
    readonly permits: number;
    readonly limit: number;
  }[];
}

/** For this long after a loss its holder may not know: the longest ttl, or the time of an unconfirmed grant. */
const UNNOTICED_US = 2_100_000;

/**
 * Compares the library with the servers: whenever the library says that a lock is held, as many of them as needed have
 * it. This needs no second holder to collide with. It also checks the counters of fencing tokens: they never go back on
 * a server that has lost nothing.
 */
export class Witness {
  readonly violations: Violation[] = [];
  readonly losses: Loss[] = [];
  /** By server and key: the highest token of a counter or a lock. */
  readonly #highest = new Map<string, number>();

  constructor(
    private readonly scheduler: Scheduler,
    private readonly servers: readonly SimulatedServer[],
    /** This many of them have a held lock. */
    private readonly quorum: number,
  ) {}

  /**
   * The library says that this lock is held.
   * @param now the time of its process, in microseconds
   */
  held({ key, owner, token }: HeldLock, now: number, turn: string): void {
    const having = this.servers.filter((server) => this.#has(server, { key, owner, token }, now));
    if (having.length >= this.quorum) return;
    const mayBeLost = (loss: Loss) => loss.server === undefined && (loss.key === undefined || loss.key === key);
    if (this.losses.some((loss) => mayBeLost(loss) && isRecent(loss, now))) return;
    this.#complain('held, but not by the servers', `${key}: turn ${turn} at ${(now / 1_000).toFixed(1)} ms`);
  }

  /**
   * A script has run.
   * @param keys its keys
   */
  ran(server: SimulatedServer, keys: readonly string[], now: number): void {
    if (!server.isPrimary) return;
    for (const key of keys) {
      const token = tokenOf(key, server.data.entry(key)?.value);
      if (token === undefined) continue;
      const id = `${server.port} ${key}`;
      const before = this.#highest.get(id) ?? 0;
      if (token >= before) this.#highest.set(id, token);
      else this.#complain('token went back on a server', `${id}: ${token} after ${before} at ${now / 1_000} ms`);
    }
  }

  /** The tokens that a server knew no longer count. */
  forget(server: SimulatedServer): void {
    for (const id of this.#highest.keys()) if (id.startsWith(`${server.port} `)) this.#highest.delete(id);
  }

  #has(server: SimulatedServer, { key, owner, token = 0 }: HeldLock, now: number): boolean {
    if (!server.isPrimary) return false;
    const entry = server.data.entry(`lock:{${key}}`);
    const value = typeof entry?.value === 'string' ? entry.value : undefined;
    // The process may be a moment ahead of the server.
    const clockMs = (server.clockUs() + now - this.scheduler.now) / 1_000;
    if (value?.startsWith(`${owner}@`) && clockMs <= (entry!.expiresAt ?? Infinity) + 1) return true;
    const mine = crowdOf(value).flatMap(({ holders }) => holders.filter((holder) => holder.owner === owner));
    if (mine.some(({ end }) => clockMs <= end + 1)) return true;
    const losses = this.losses.filter((loss) => loss.server === server && isRecent(loss, now));
    if (losses.length === 0) return false;
    // A single server that has lost a lock may grant it again. One of several then does not vote, and has at most old
    // locks.
    const mayGrant = this.quorum === 1 || losses.some(({ isUnnoticed }) => isUnnoticed);
    return mayGrant || value === undefined || Number(/@(\d+)/.exec(value)?.[1]) < token;
  }

  #complain(rule: string, text: string): void {
    this.violations.push({ rule, text });
  }
}

function isRecent({ at, until }: Loss, now: number): boolean {
  return at <= now && now <= until + UNNOTICED_US;
}

/** The holders that share a lock, by its value: empty for an exclusive holder, or none. */
export function crowdOf(value: unknown): Crowd[] {
  if (typeof value !== 'string' || !value.startsWith('~')) return [];
  const holders = [...value.matchAll(/ (\d+) (\d+) (\d+) (\S+)/g)].map(([, end, permits, limit, owner]) => ({
    owner: owner!,
    end: Number(end),
    permits: Number(permits),
    limit: Number(limit),
  }));
  return [{ isOfReaders: value.startsWith('~s'), holders }];
}

/** The value of a fencing counter. */
function tokenOf(key: string, value: unknown): number | undefined {
  return key.startsWith('lock:fence') && typeof value === 'string' ? Number(value) : undefined;
}
