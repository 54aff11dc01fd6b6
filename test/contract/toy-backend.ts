import { setTimeout as delay } from 'node:timers/promises';
import {
  type AcquireRequest,
  type ExtendRequest,
  type Grant,
  type Holding,
  type Listed,
  type ListRequest,
  matcherOf,
  type PromiseBackend,
  type Releasing,
  type Transfer,
} from '../../lib/testing/index.js';

interface Entry {
  owner: string;
  fencingToken: number;
  since: number;
  endsAt: number;
  isKept?: boolean;
}

/** As small as a backend can be: a `Map`, and a delay where a store would have a network. It keeps no queue. */
export class ToyBackend implements PromiseBackend {
  readonly name = 'toy';
  readonly #entries = new Map<string, Entry>();
  #lastToken = 0;

  /** @param delayMs how long an operation takes to reach the store */
  constructor(
    private readonly now: () => number,
    private readonly delayMs = 1,
  ) {}

  attemptTimeoutMs(): number {
    return 1_000;
  }

  async acquire({ key, hold, owner, ttlMs, turns = 1 }: AcquireRequest) {
    if (hold.mode !== 'exclusive') throw new Error('it holds exclusive locks only');
    const entry = await this.#seen(key);
    const now = this.now();
    if (entry && (entry.owner !== owner || entry.isKept)) {
      const remainingMs = entry.endsAt - now;
      return { status: 'contended', owner: entry.owner, remainingMs, isKept: entry.isKept, queued: false } as const;
    }
    const fencingToken = this.#lastToken + 1;
    const lastToken = (this.#lastToken += turns);
    this.#entries.set(key, { owner, fencingToken, since: now, endsAt: now + ttlMs });
    return { status: 'acquired', grant: { key, owner, fencingToken, lastToken } } as const;
  }

  async extend({ grant: { key, owner }, ttlMs }: ExtendRequest) {
    const entry = await this.#seen(key);
    if (entry?.owner !== owner || entry.isKept) {
      return { status: 'lost', reason: entry ? 'stolen' : 'expired' } as const;
    }
    entry.endsAt = this.now() + ttlMs;
    return { status: 'extended' } as const;
  }

  async release({ key, owner }: Grant, { keepUntil }: Releasing) {
    const entry = await this.#seen(key);
    if (entry?.owner !== owner) return { status: 'gone' } as const;
    const keptForMs = (keepUntil ?? 0) - this.now();
    if (keptForMs > 0) Object.assign(entry, { isKept: true, endsAt: this.now() + keptForMs });
    else this.#entries.delete(key);
    return { status: 'released' } as const;
  }

  async transfer({ key, from, to, ttlMs, atLeast, mints }: Transfer) {
    const entry = await this.#seen(key);
    const isMeant = entry && !entry.isKept && [from, to].includes(entry.owner);
    if (!isMeant) return { status: 'lost', reason: entry ? 'stolen' : 'expired' } as const;
    if (mints && entry.owner === from) entry.fencingToken = ++this.#lastToken;
    Object.assign(entry, { owner: to, endsAt: Math.max(this.now() + ttlMs, atLeast ? entry.endsAt : 0) });
    return { status: 'transferred', grant: { key, owner: to, fencingToken: entry.fencingToken } } as const;
  }

  async inspect(key: string): Promise<Holding | undefined> {
    const entry = await this.#seen(key);
    return entry && this.#holding(entry);
  }

  async list({ match, limit }: ListRequest): Promise<Listed> {
    await delay(this.delayMs);
    const fits = matcherOf(match);
    const live = [...this.#entries].filter(([key, { endsAt }]) => fits(key) && endsAt > this.now());
    const locks = live.slice(0, limit).map(([key, entry]) => ({ key, holding: this.#holding(entry) }));
    return { locks, complete: locks.length === live.length, scanned: this.#entries.size };
  }

  async forceRelease(key: string, from?: string) {
    const entry = await this.#seen(key);
    if (!entry || (from !== undefined && entry.owner !== from)) return undefined;
    this.#entries.delete(key);
    return { from: [entry.owner] };
  }

  #holding({ owner, fencingToken, since, endsAt, isKept }: Entry): Holding {
    const now = this.now();
    return { holders: [{ owner, fencingToken, remainingMs: endsAt - now, heldForMs: now - since, isKept }] };
  }

  async #seen(key: string): Promise<Entry | undefined> {
    await delay(this.delayMs);
    const entry = this.#entries.get(key);
    return entry && entry.endsAt > this.now() ? entry : undefined;
  }
}
