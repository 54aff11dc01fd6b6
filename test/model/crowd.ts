import type { Hold } from '../../lib/testing/index.js';

/**
 * One lock that several may hold, as it should be: who holds it, who waits, and who is served. It knows nothing of texts in Redis, nor
 * of tokens, and is written in another way than the scripts: each step looks at all holders and all places anew.
 */

/** How long a grant stands that is not confirmed, in milliseconds. */
export const GRANT_MS = 2_000;
/** After so long without a sign, in microseconds, a process is silent if another has given one. */
const SILENT_US = 2_000_000;
/** How long the queue outlives the last sign, in milliseconds. */
const QUEUE_MS = 10_000;

export interface ModelHolder {
  readonly owner: string;
  readonly hold: Hold;
  /** In milliseconds. */
  end: number;
}

export interface ModelPlace {
  readonly ticket: string;
  readonly process: string;
  readonly hold: Hold;
  /** When it counts as taken, in microseconds. */
  readonly number: number;
}

/** An attempt. */
export interface Ask {
  readonly owner: string;
  readonly hold: Hold;
  readonly ttlMs: number;
  readonly give?: string;
  readonly others?: readonly string[];
  /** Its owner is the ticket. */
  readonly place?: Omit<ModelPlace, 'ticket' | 'hold'>;
}

export interface Answer {
  readonly granted: boolean;
  readonly gave: -1 | 0 | 1;
  /** How many of the others were granted it. */
  readonly others: number;
}

export class CrowdModel {
  nowUs: number;
  holders: ModelHolder[] = [];
  queue: ModelPlace[] = [];
  /** Those who listen. */
  readonly listening = new Set<string>();
  /** Who was told that the lock was handed over to it. */
  readonly told: string[] = [];
  /** Changes when the lock turns from free to held. */
  phase = 0;
  /** Those whose time was over while others went on. */
  readonly overtaken = new Set<string>();
  readonly #signs = new Map<string, number>();
  #queueEndsAt = 0;
  /** The owner that took a free lock past the queue, as long as no place was taken since: it gives it back to nobody. */
  #unaware?: string;

  constructor(nowUs: number) {
    this.nowUs = nowUs;
  }

  get ms(): number {
    return Math.floor(this.nowUs / 1_000);
  }

  get smallestLimit(): number {
    return Math.min(...this.holders.map(({ hold }) => (hold.mode === 'permits' ? hold.limit : Infinity)));
  }

  advance(us: number): void {
    this.nowUs += us;
    const over = this.holders.filter(({ end }) => end < this.ms);
    this.holders = this.holders.filter(({ end }) => end >= this.ms);
    for (const { owner, hold } of over) if (hold.mode !== 'exclusive') this.overtaken.add(owner);
    if (this.holders.length === 0) this.overtaken.clear();
    if (this.#queueEndsAt < this.ms) this.queue = [];
    this.#forgetSigns();
  }

  fits(wanted: Hold): boolean {
    return this.holders.every(({ hold }) => {
      if (hold.mode !== wanted.mode || hold.mode === 'exclusive') return false;
      if (hold.mode === 'shared' || wanted.mode !== 'permits') return true;
      return this.#used() + wanted.permits <= Math.min(this.smallestLimit, wanted.limit);
    });
  }

  /** Asks for it alone, past the queue. */
  acquire(owner: string, ttlMs: number): boolean {
    const own = this.holders.find((holder) => holder.owner === owner);
    if (!own && this.holders.length > 0) return false;
    this.#grant(owner, { mode: 'exclusive' }, ttlMs);
    if (!own) this.#unaware = owner;
    return true;
  }

  ask({ owner, hold, ttlMs, give, others = [], place }: Ask): Answer {
    const isForeign = this.holders.some((holder) => holder.hold.mode === 'exclusive' && holder.owner !== give);
    const gave = give === undefined ? 0 : this.#remove(give) ? 1 : this.holders.length > 0 ? -1 : 0;
    const own = this.holders.find((holder) => holder.owner === owner);
    // Whoever waits has its place at once: by its number it may be the first.
    if (!own && place) {
      this.#unaware = undefined;
      const mine: ModelPlace = { ...place, ticket: owner, hold };
      this.queue = [...this.#without(owner), mine].sort((a, b) => a.number - b.number);
      this.#signs.set(place.process, this.nowUs);
      this.#queueEndsAt = this.ms + QUEUE_MS;
    }
    if (own) {
      this.#unaware = undefined;
      own.end = this.ms + ttlMs;
      for (const holder of this.holders) if (others.includes(holder.owner)) holder.end = this.ms + ttlMs;
      this.queue = this.#without(owner);
    }
    if (!isForeign || gave === 1) this.#serve({ owner, ttlMs });
    let granted = this.holders.some((holder) => holder.owner === owner);
    if (!granted && !place && this.queue.length === 0 && this.fits(hold)) {
      this.#grant(owner, hold, ttlMs);
      granted = true;
    }
    let joined = 0;
    while (granted && joined < others.length) {
      const other = others[joined]!;
      const holds = this.holders.some((holder) => holder.owner === other);
      if (!holds && (this.queue.length > 0 || !this.fits(hold))) break;
      if (!holds) this.#grant(other, hold, ttlMs);
      joined++;
    }
    this.#forgetSigns();
    return { granted, gave, others: joined };
  }

  release(owner: string): -1 | 0 | 1 {
    if (!this.#remove(owner)) return this.holders.length > 0 ? -1 : 0;
    if (this.#unaware !== owner) this.#serve();
    return 1;
  }

  extend(owner: string, ttlMs: number): -1 | 0 | 1 {
    const own = this.holders.find((holder) => holder.owner === owner);
    if (own) {
      own.end = this.ms + ttlMs;
      return 1;
    }
    return this.holders.length === 0 || this.overtaken.has(owner) ? 0 : -1;
  }

  withdraw(ticket: string): boolean {
    this.queue = this.#without(ticket);
    this.#forgetSigns();
    const held = this.#remove(ticket);
    if (held || this.holders.some(({ hold }) => hold.mode !== 'exclusive')) this.#serve();
    return held;
  }

  forceRelease(from?: string): string[] {
    const taken = this.holders.map(({ owner }) => owner).filter((owner) => from === undefined || owner === from);
    for (const owner of taken) this.#remove(owner);
    if (taken.length > 0) this.#serve();
    return taken;
  }

  /** Whether it is known to be gone, and is not waited for. */
  isSilent(process: string): boolean {
    return Math.max(...this.#signs.values()) - (this.#signs.get(process) ?? 0) > SILENT_US;
  }

  #serve(asking?: { owner: string; ttlMs: number }): void {
    for (let first = this.queue[0]; first; first = this.queue[0]) {
      if (this.#isAlone) return;
      const { ticket, process, hold } = first;
      const isOwn = ticket === asking?.owner;
      const isGone = this.isSilent(process) || !(isOwn || this.listening.has(process));
      if (!isGone && !this.fits(hold)) return;
      this.queue.shift();
      if (isGone) continue;
      this.#grant(ticket, hold, isOwn ? asking.ttlMs : GRANT_MS);
      if (!isOwn) this.told.push(ticket);
    }
    this.#forgetSigns();
  }

  #grant(owner: string, hold: Hold, ttlMs: number): void {
    if (this.holders.length === 0) {
      this.phase++;
      this.overtaken.clear();
    }
    this.overtaken.delete(owner);
    const own = this.holders.find((holder) => holder.owner === owner);
    if (own) own.end = this.ms + ttlMs;
    else this.holders.push({ owner, hold, end: this.ms + ttlMs });
  }

  #remove(owner: string): boolean {
    const before = this.holders.length;
    this.holders = this.holders.filter((holder) => holder.owner !== owner);
    if (this.holders.length === 0) this.overtaken.clear();
    return this.holders.length < before;
  }

  #without(ticket: string): ModelPlace[] {
    return this.queue.filter((place) => place.ticket !== ticket);
  }

  /** Whether one holds it alone: whoever is silent meanwhile keeps its place until it is given back. */
  get #isAlone(): boolean {
    return this.holders.some(({ hold }) => hold.mode === 'exclusive');
  }

  #used(): number {
    return this.holders.reduce((sum, { hold }) => sum + (hold.mode === 'permits' ? hold.permits : 0), 0);
  }

  #forgetSigns(): void {
    if (this.queue.length === 0) this.#signs.clear();
  }
}
