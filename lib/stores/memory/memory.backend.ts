import type { Finding } from '../../api/diagnosis.js';
import { NodeError } from '../../api/errors.js';
import type { LockMode } from '../../api/lock.js';
import {
  EXCLUSIVE,
  type AcquireOutcome,
  type AcquireRequest,
  type Bounds,
  type ExtendOutcome,
  type ExtendRequest,
  type Grant,
  type Hold,
  type Holder,
  type Holding,
  type Listed,
  type ListRequest,
  type LockBackend,
  type Place,
  type ReleaseOutcome,
  type Releasing,
  type Taken,
  type Transfer,
  type TransferOutcome,
  type WaitListener,
  type WaitQueue,
} from '../../core/backend/lock-backend.js';
import { leftMs } from '../../core/time/clock.js';
import { matcherOf } from '../../core/backend/matcher.js';
import { pingOfOne, type BackendPing, type BackendReport } from '../../core/backend/report.js';

const SINGLE_PROCESS_WARNING: Finding = {
  severity: 'warning',
  code: 'memory',
  message:
    'Locks are kept in the memory of this process and do not exclude other processes. Use redis or redlock to exclude them.',
};

const UNSUPPORTED_MODE: AcquireOutcome = {
  status: 'unavailable',
  causes: [
    new NodeError('memory', 'locks in memory are exclusive, shared or permits', 'Use one of these modes.', true),
  ],
};

/** A lock and its holders. */
interface Entry {
  mode: LockMode;
  /** The token of the exclusive holder, or of all who share the lock. Permits have none. */
  fencingToken?: number;
  /** In the order of their arrival. An expired holder stays until the next attempt, so that its extension can report why the lock was lost. */
  holders: Member[];
  /** The work of its owner has ended. Only exclusive locks can be kept. */
  isKept?: boolean;
}

interface Member {
  owner: string;
  since: number;
  expiresAt: number;
  readonly permits?: number;
  readonly limit?: number;
}

/**
 * Locks in the memory of this process, with real leases and tokens, for first steps and, through LockTestingModule, for tests. No other
 * process competes, but calls in one mode may wait behind calls in another mode. So it keeps queues, and wakes up the first place.
 */
export class MemoryBackend implements LockBackend, WaitQueue {
  readonly handsOver = false;
  readonly waitQueue: WaitQueue = this;
  readonly bounds: Bounds = {};
  readonly modes: readonly LockMode[] = ['shared', 'permits'];
  readonly #entries = new Map<string, Entry>();
  /** The waiters for a lock, in the order of their arrival. */
  readonly #places = new Map<string, Place[]>();
  #listener?: WaitListener;
  readonly #now: () => number;
  // One counter for all keys, so that a key needs no memory for it.
  #lastToken = 0;
  #sweepAt = 1_000;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Longer than any attempt, since each is answered before a timer can run. */
  attemptTimeoutMs(): number {
    return 1_000;
  }

  acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    void Promise.resolve(this.#acquire(request)).then(done);
  }

  isListening(): boolean {
    return this.#listener !== undefined;
  }

  listen(_key: string, listener: WaitListener): void {
    if (this.#listener) return;
    this.#listener = listener;
    for (const key of this.#places.keys()) this.#wake(key); // a lock may have been released since the first attempt
  }

  checkListening(): void {
    // Function calls cannot be lost.
  }

  leave(key: string, { ticket }: Place): void {
    this.#leave(key, ticket);
    this.#wake(key);
  }

  #acquire({ key, hold, owner, others = [], ttlMs, turns = 1, place }: AcquireRequest): AcquireOutcome {
    if (hold.mode !== 'exclusive' && !this.modes.includes(hold.mode)) return UNSUPPORTED_MODE;
    const now = this.#now();
    const entry: Entry = this.#live(key, now) ?? { mode: hold.mode, holders: [] };
    entry.holders = living(entry, now);
    const smallerLimit = smallerLimitOf(entry, hold);
    const [first] = this.#places.get(key) ?? [];
    const isOthersTurn = first !== undefined && first.ticket !== place?.ticket;
    if (isOthersTurn || !admits(entry, hold, owner)) {
      if (place) this.#queue(key, place);
      if (isOthersTurn) this.#wake(key); // some holders may have expired
      const ends = entry.holders.map(({ expiresAt }) => expiresAt - now);
      const remainingMs = ends.length === 0 ? 0 : hold.mode === entry.mode ? Math.min(...ends) : Math.max(...ends);
      const seen = { owner: entry.holders[0]?.owner, others: Math.max(0, ends.length - 1), isKept: entry.isKept };
      return { status: 'contended', ...seen, remainingMs, smallerLimit, queued: place !== undefined };
    }
    if (place) this.#leave(key, place.ticket);
    if (hold.mode === 'exclusive') entry.fencingToken = this.#mint(turns);
    if (hold.mode === 'shared') entry.fencingToken ??= this.#mint(1);
    const grants: Grant[] = [];
    for (const each of [owner, ...others]) {
      if (!admits(entry, hold, each) || (each !== owner && this.#places.has(key))) break;
      enter(entry, hold, { owner: each, since: now, expiresAt: now + ttlMs });
      const lastToken = hold.mode === 'exclusive' ? this.#lastToken : undefined;
      grants.push({ key, owner: each, hold, fencingToken: entry.fencingToken, lastToken });
    }
    this.#entries.set(key, entry);
    this.#sweep();
    this.#wake(key);
    return { status: 'acquired', grant: grants[0]!, others: grants.slice(1), smallerLimit, sentAt: now };
  }

  extend(request: ExtendRequest, done: (outcome: ExtendOutcome) => void): void {
    void Promise.resolve(this.#extend(request)).then(done);
  }

  #extend({ grant: { key, owner }, ttlMs }: ExtendRequest): ExtendOutcome {
    const sentAt = this.#now();
    const entry = this.#live(key, sentAt);
    const holder = entry?.holders.find((each) => each.owner === owner);
    if (entry && (!holder || entry.isKept)) return { status: 'lost', reason: 'stolen' };
    if (!holder || holder.expiresAt <= sentAt) return { status: 'lost', reason: 'expired' };
    holder.expiresAt = sentAt + ttlMs;
    return { status: 'extended', sentAt };
  }

  release(grant: Grant, how: Releasing, done: (outcome: ReleaseOutcome) => void): void {
    void Promise.resolve(this.#release(grant, how)).then(done);
  }

  #release({ key, owner }: Grant, { keepUntil }: Releasing): ReleaseOutcome {
    const now = this.#now();
    const entry = this.#live(key, now);
    const holder = entry && living(entry, now).find((each) => each.owner === owner);
    const keptForMs = leftMs(keepUntil);
    if (!holder || (keptForMs > 0 && entry.mode !== 'exclusive')) return { status: 'gone' };
    if (keptForMs > 0) {
      entry.isKept = true;
      holder.expiresAt = now + keptForMs;
    } else this.#remove(key, entry, [holder]);
    return { status: 'released' };
  }

  async transfer({ key, from, to, ttlMs, atLeast, mints, hold = EXCLUSIVE }: Transfer): Promise<TransferOutcome> {
    const now = this.#now();
    const entry = this.#live(key, now);
    const holder = entry && living(entry, now).find(({ owner }) => owner === from || owner === to);
    const canMove = holder && !entry.isKept && entry.mode === (holder.owner === to ? hold.mode : 'exclusive');
    if (!canMove) return { status: 'lost', reason: entry ? 'stolen' : 'expired' };
    if (mints && holder.owner === from) {
      entry.fencingToken = this.#mint(1);
      holder.since = now;
    }
    entry.mode = hold.mode;
    Object.assign(holder, { owner: to, expiresAt: Math.max(now + ttlMs, atLeast ? holder.expiresAt : 0) });
    this.#wake(key);
    return { status: 'transferred', grant: { key, owner: to, hold, fencingToken: entry.fencingToken }, sentAt: now };
  }

  probeKey(key: string): string {
    return `}${key}:probe`; // no key of a user begins like this
  }

  problems(): [] {
    return [];
  }

  async inspect(key: string): Promise<Holding | undefined> {
    return this.#holding(key);
  }

  async list({ match, limit, budgetMs }: ListRequest): Promise<Listed> {
    const endsAt = this.#now() + budgetMs;
    const fits = matcherOf(match);
    const locks: Listed['locks'] = [];
    let scanned = 0;
    for (const key of this.#entries.keys()) {
      const holding = fits(key) ? this.#holding(key) : undefined;
      if (this.#now() >= endsAt || (holding && locks.length === limit)) return { locks, complete: false, scanned };
      scanned++;
      if (holding) locks.push({ key, holding });
    }
    return { locks, complete: true, scanned };
  }

  async forceRelease(key: string, from?: string): Promise<Taken | undefined> {
    const now = this.#now();
    const entry = this.#live(key, now);
    const holders = entry ? living(entry, now).filter(({ owner }) => from === undefined || owner === from) : [];
    if (!entry || holders.length === 0) return undefined;
    this.#remove(key, entry, holders);
    return { from: holders.map(({ owner }) => owner) };
  }

  async connect(): Promise<[]> {
    return [];
  }

  async ping(): Promise<BackendPing> {
    return pingOfOne();
  }

  async report(): Promise<BackendReport> {
    return { backend: 'memory', where: 'in the memory of this process', nodes: [], findings: [SINGLE_PROCESS_WARNING] };
  }

  async close(): Promise<void> {
    this.#entries.clear();
  }

  /** @returns the first of the tokens */
  #mint(turns: number): number {
    // The wall clock in microseconds, as in Redis, so that tokens after a restart are above earlier ones. Grants in the same millisecond, or
    // a clock that was set back, can make the last token reach the time. Then the next token is one more.
    const fencingToken = Math.max(Date.now() * 1_000, this.#lastToken + 1);
    this.#lastToken = fencingToken + turns - 1;
    return fencingToken;
  }

  #holding(key: string): Holding | undefined {
    const now = this.#now();
    const entry = this.#live(key, now);
    if (!entry) return undefined;
    const { mode, fencingToken, isKept } = entry;
    const [first, ...rest] = living(entry, now).map(({ owner, since, expiresAt, permits, limit }): Holder => ({
      owner,
      fencingToken,
      remainingMs: expiresAt - now,
      heldForMs: now - since,
      isKept,
      permits,
      limit,
    }));
    const waiting = this.#places.get(key)?.map(({ ticket, calls }) => ({ ticket, calls }));
    return first && { mode, holders: [first, ...rest], waiting };
  }

  #remove(key: string, entry: Entry, holders: readonly Member[]): void {
    entry.holders = entry.holders.filter((each) => !holders.includes(each));
    if (!this.#live(key, this.#now())) this.#entries.delete(key);
    this.#wake(key);
  }

  #queue(key: string, place: Place): void {
    const places = this.#places.get(key) ?? [];
    const at = places.findIndex(({ ticket }) => ticket === place.ticket);
    if (at < 0) places.push(place);
    else places[at] = place;
    this.#places.set(key, places);
  }

  #leave(key: string, ticket: string): void {
    const places = this.#places.get(key)?.filter((place) => place.ticket !== ticket) ?? [];
    if (places.length > 0) this.#places.set(key, places);
    else this.#places.delete(key);
  }

  /** Wakes the first place in the queue, if it could have the lock. Each call that takes the lock wakes the next place. */
  #wake(key: string): void {
    const [first] = this.#places.get(key) ?? [];
    if (!first) return;
    const now = this.#now();
    const { mode = first.hold.mode, holders = [], isKept } = this.#live(key, now) ?? {};
    const alive = { mode, isKept, holders: holders.filter((each) => isLiving(each, now)) };
    if (admits(alive, first.hold, first.ticket))
      void Promise.resolve().then(() => this.#listener?.onTurn(first.ticket));
  }

  #live(key: string, now: number): Entry | undefined {
    const entry = this.#entries.get(key);
    return entry?.holders.some((each) => isLiving(each, now)) ? entry : undefined;
  }

  /** Forgets expired leases whenever the number of entries has doubled. */
  #sweep(): void {
    if (this.#entries.size < this.#sweepAt) return;
    const now = this.#now();
    for (const key of this.#entries.keys()) if (!this.#live(key, now)) this.#entries.delete(key);
    this.#sweepAt = Math.max(1_000, 2 * this.#entries.size);
  }
}

function living({ holders }: Entry, now: number): Member[] {
  return holders.filter((each) => isLiving(each, now));
}

function isLiving({ expiresAt }: Member, now: number): boolean {
  return expiresAt > now;
}

/** Whether this owner can join the current holders, or holds the lock already, since an attempt can run twice. */
function admits({ mode, holders, isKept }: Entry, hold: Hold, owner: string): boolean {
  if (holders.length === 0) return true;
  if (mode !== hold.mode || isKept) return false;
  if (hold.mode === 'shared' || holders.some((each) => each.owner === owner)) return true;
  if (hold.mode === 'exclusive') return false;
  const taken = holders.reduce((sum, { permits = 0 }) => sum + permits, 0);
  return taken + hold.permits <= Math.min(hold.limit, smallestLimit(holders));
}

function enter({ holders }: Entry, hold: Hold, member: Member): void {
  const present = holders.find(({ owner }) => owner === member.owner);
  const { permits, limit } = hold.mode === 'permits' ? hold : {};
  if (present) present.expiresAt = member.expiresAt;
  else holders.push({ ...member, permits, limit });
}

function smallerLimitOf({ mode, holders }: Entry, hold: Hold): number | undefined {
  if (mode !== 'permits' || hold.mode !== 'permits') return undefined;
  const smallest = smallestLimit(holders);
  return smallest < hold.limit ? smallest : undefined;
}

function smallestLimit(holders: readonly Member[]): number {
  return holders.reduce((smallest, { limit = Infinity }) => Math.min(smallest, limit), Infinity);
}
