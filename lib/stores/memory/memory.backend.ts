import type {
  AcquireOutcome,
  Claim,
  ExtendOutcome,
  Holding,
  LockBackend,
  ReleaseOutcome,
  Taken,
  Waiting,
} from '../../core/backend/lock-backend.js';

interface Entry {
  owner: string;
  fencingToken: number;
  since: number;
  expiresAt: number;
}

/**
 * Locks in this process, with the leases and the tokens of the real thing: for tests and first steps. There is no other
 * process to wait for, so it keeps no queue: the service's own is in the order of arrival.
 */
export class MemoryBackend implements LockBackend {
  readonly handsOver = false;
  readonly isListening = true;
  readonly #entries = new Map<string, Entry>();
  readonly #now: () => number;
  // One counter for all keys costs no memory for each; like in Redis, a restart begins above the earlier tokens.
  #lastToken = Date.now() * 1_000;
  #sweepAt = 1_000;

  constructor(now: () => number) {
    this.#now = now;
  }

  attemptTimeoutMs(): number {
    return 0;
  }

  acquire(claim: Claim, waiting: Waiting | undefined, told: (outcome: AcquireOutcome) => void): void {
    const outcome = this.#acquire(claim, waiting?.tokens);
    void Promise.resolve(outcome).then(told);
  }

  #acquire({ key, owner, ttlMs }: Claim, tokens = 1): AcquireOutcome {
    const now = this.#now();
    const holder = this.#live(key);
    if (holder && holder.owner !== owner) {
      return { status: 'contended', owner: holder.owner, remainingMs: holder.expiresAt - now, queued: false };
    }
    const fencingToken = this.#lastToken + 1;
    this.#lastToken += tokens;
    this.#entries.set(key, { owner, fencingToken, since: now, expiresAt: now + ttlMs });
    this.#sweep();
    return { status: 'acquired', fencingToken, lastToken: this.#lastToken, sentAt: now };
  }

  extend(claim: Claim, told: (outcome: ExtendOutcome) => void): void {
    const outcome = this.#extend(claim);
    void Promise.resolve(outcome).then(told);
  }

  #extend({ key, owner, ttlMs }: Claim): ExtendOutcome {
    const entry = this.#live(key);
    if (entry?.owner !== owner) return { status: 'lost', reason: entry ? 'stolen' : 'expired' };
    const sentAt = this.#now();
    entry.expiresAt = sentAt + ttlMs;
    return { status: 'extended', sentAt };
  }

  async release({ key, owner }: Claim): Promise<ReleaseOutcome> {
    if (this.#live(key)?.owner !== owner) return { status: 'gone' };
    this.#entries.delete(key);
    return { status: 'released' };
  }

  leave(): void {}

  listen(): void {}

  checkListening(): void {}

  problems(): [] {
    return [];
  }

  async inspect(key: string): Promise<Holding | undefined> {
    const entry = this.#live(key);
    if (!entry) return undefined;
    const now = this.#now();
    const { owner, fencingToken, since, expiresAt } = entry;
    return { owner, fencingToken, remainingMs: expiresAt - now, heldForMs: now - since };
  }

  async forceRelease(key: string): Promise<Taken | undefined> {
    const entry = this.#live(key);
    this.#entries.delete(key);
    return entry && { from: [entry.owner] };
  }

  async connect(): Promise<[]> {
    return [];
  }

  async probe(): Promise<[]> {
    return [];
  }

  async close(): Promise<void> {
    this.#entries.clear();
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
