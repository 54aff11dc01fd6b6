import type { Finding } from '../../api/diagnosis.js';
import { NodeError } from '../../api/errors.js';
import type {
  AcquireOutcome,
  AcquireRequest,
  Bounds,
  ExtendOutcome,
  ExtendRequest,
  Grant,
  Holding,
  Listed,
  ListRequest,
  LockBackend,
  ReleaseOutcome,
  Releasing,
  Taken,
  Transfer,
  TransferOutcome,
} from '../../core/backend/lock-backend.js';
import { leftMs } from '../../core/time/clock.js';
import { matcherOf } from '../../core/backend/matcher.js';
import { pingOfOne, type BackendPing, type BackendReport } from '../../core/backend/report.js';

const EXCLUDES_NO_OTHERS: Finding = {
  severity: 'warning',
  code: 'memory',
  message: 'Locks are kept in the memory of this process and exclude no other process. Use redis or redlock for that.',
};

const EXCLUSIVE_ONLY: AcquireOutcome = {
  status: 'unavailable',
  causes: [new NodeError('memory', 'locks in memory are exclusive', 'Ask for an exclusive lock.')],
};

interface Entry {
  owner: string;
  fencingToken: number;
  since: number;
  expiresAt: number;
  /** The work of its owner has ended. */
  isKept?: boolean;
}

/**
 * Locks in this process, with the leases and the tokens of the real thing: for first steps, and for the tests of applications,
 * which have them by LockTestingModule. There is no other process to wait for, so it keeps no queue: the service's own is in the
 * order of arrival.
 */
export class MemoryBackend implements LockBackend {
  readonly bounds: Bounds = {};
  readonly #entries = new Map<string, Entry>();
  readonly #now: () => number;
  // One counter for all keys, which costs no memory for each.
  #lastToken = 0;
  #sweepAt = 1_000;

  constructor(now: () => number) {
    this.#now = now;
  }

  /** Longer than any attempt: each is answered before a timer could run. */
  attemptTimeoutMs(): number {
    return 1_000;
  }

  acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
    void Promise.resolve(this.#acquire(request)).then(done);
  }

  #acquire({ key, hold, owner, ttlMs, turns = 1 }: AcquireRequest): AcquireOutcome {
    if (hold.mode !== 'exclusive') return EXCLUSIVE_ONLY;
    const now = this.#now();
    const holder = this.#live(key);
    if (holder && (holder.owner !== owner || holder.isKept)) {
      const { isKept, expiresAt } = holder;
      return { status: 'contended', owner: holder.owner, remainingMs: expiresAt - now, isKept, queued: false };
    }
    const fencingToken = this.#mint(turns);
    this.#entries.set(key, { owner, fencingToken, since: now, expiresAt: now + ttlMs });
    this.#sweep();
    return { status: 'acquired', grant: { key, owner, fencingToken, lastToken: this.#lastToken }, sentAt: now };
  }

  extend(request: ExtendRequest, done: (outcome: ExtendOutcome) => void): void {
    void Promise.resolve(this.#extend(request)).then(done);
  }

  #extend({ grant: { key, owner }, ttlMs }: ExtendRequest): ExtendOutcome {
    const entry = this.#live(key);
    if (entry?.owner !== owner || entry.isKept) return { status: 'lost', reason: entry ? 'stolen' : 'expired' };
    const sentAt = this.#now();
    entry.expiresAt = sentAt + ttlMs;
    return { status: 'extended', sentAt };
  }

  release(grant: Grant, how: Releasing, done: (outcome: ReleaseOutcome) => void): void {
    void Promise.resolve(this.#release(grant, how)).then(done);
  }

  #release({ key, owner }: Grant, { keepUntil }: Releasing): ReleaseOutcome {
    const entry = this.#live(key);
    if (entry?.owner !== owner) return { status: 'gone' };
    const keptForMs = leftMs(keepUntil);
    if (keptForMs > 0) Object.assign(entry, { isKept: true, expiresAt: this.#now() + keptForMs });
    else this.#entries.delete(key);
    return { status: 'released' };
  }

  async transfer({ key, from, to, ttlMs, mints }: Transfer): Promise<TransferOutcome> {
    const entry = this.#live(key);
    const now = this.#now();
    const isMeant = entry && !entry.isKept && [from, to].includes(entry.owner);
    if (!isMeant) return { status: 'lost', reason: entry ? 'stolen' : 'expired' };
    if (mints && entry.owner === from) Object.assign(entry, { fencingToken: this.#mint(1), since: now });
    Object.assign(entry, { owner: to, expiresAt: now + ttlMs });
    return { status: 'transferred', grant: { key, owner: to, fencingToken: entry.fencingToken }, sentAt: now };
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
    const entry = this.#live(key);
    if (!entry || (from !== undefined && entry.owner !== from)) return undefined;
    this.#entries.delete(key);
    return { from: [entry.owner] };
  }

  async connect(): Promise<[]> {
    return [];
  }

  async ping(): Promise<BackendPing> {
    return pingOfOne();
  }

  async report(): Promise<BackendReport> {
    return { backend: 'memory', where: 'in the memory of this process', nodes: [], findings: [EXCLUDES_NO_OTHERS] };
  }

  async close(): Promise<void> {
    this.#entries.clear();
  }

  /** @returns the first of so many tokens */
  #mint(turns: number): number {
    // The wall clock in microseconds, as in Redis, so that a restart begins above the earlier tokens; or one more than the
    // last token where that has reached the time: grants in the same millisecond, or a clock that was set back.
    const fencingToken = Math.max(Date.now() * 1_000, this.#lastToken + 1);
    this.#lastToken = fencingToken + turns - 1;
    return fencingToken;
  }

  #holding(key: string): Holding | undefined {
    const entry = this.#live(key);
    if (!entry) return undefined;
    const now = this.#now();
    const { owner, fencingToken, since, expiresAt, isKept } = entry;
    const holder = { owner, fencingToken, remainingMs: expiresAt - now, heldForMs: now - since, isKept };
    return { holders: [holder], waiting: [] }; // no other process can wait
  }

  #live(key: string): Entry | undefined {
    const entry = this.#entries.get(key);
    return entry && entry.expiresAt > this.#now() ? entry : undefined;
  }

  /** Forgets leases that ran out, each time the number of entries has doubled. */
  #sweep(): void {
    if (this.#entries.size < this.#sweepAt) return;
    for (const key of this.#entries.keys()) if (!this.#live(key)) this.#entries.delete(key);
    this.#sweepAt = Math.max(1_000, 2 * this.#entries.size);
  }
}
