import { setTimeout as delay } from 'node:timers/promises';
import {
  type AcquireRequest,
  type ExtendRequest,
  type Grant,
  type Hold,
  type Holding,
  type Listed,
  type ListRequest,
  matcherOf,
  type PromiseBackend,
  type Releasing,
} from '../../lib/testing/index.js';

export interface Member {
  owner: string;
  hold: Hold;
  fencingToken?: number;
  since: number;
  endsAt: number;
  isKept?: boolean;
}

/**
 * A toy whose locks several callers can hold. Each of its rules is a method, which a test can replace. It has no queue.
 */
export class ToyCrowd implements PromiseBackend {
  readonly name = 'toy';
  readonly modes = ['shared', 'permits'] as const;
  readonly #locks = new Map<string, Member[]>();
  #lastToken = 0;

  constructor(private readonly now: () => number) {}

  attemptTimeoutMs(): number {
    return 1_000;
  }

  /** The holders that count. */
  counted(members: readonly Member[]): Member[] {
    return members.filter(({ endsAt }) => endsAt > this.now());
  }

  /** The number of permits that the holders and one asking call may have together. */
  limitOf(members: readonly Member[], limit: number): number {
    return Math.min(limit, ...members.map(({ hold }) => (hold.mode === 'permits' ? hold.limit : Infinity)));
  }

  fits(members: readonly Member[], hold: Hold): boolean {
    if (members.length === 0) return true;
    if (hold.mode === 'exclusive' || hold.mode !== members[0]!.hold.mode) return false;
    if (hold.mode === 'shared') return true;
    const taken = members.reduce((sum, member) => sum + (member.hold.mode === 'permits' ? member.hold.permits : 0), 0);
    return taken + hold.permits <= this.limitOf(members, hold.limit);
  }

  /** The token of a call that shares the lock with these. */
  sharedToken(members: readonly Member[]): number {
    return members[0]?.fencingToken ?? ++this.#lastToken;
  }

  nextToken(): number {
    return ++this.#lastToken;
  }

  prolong(member: Member, endsAt: number, _members: readonly Member[]): void {
    member.endsAt = endsAt;
  }

  without(members: readonly Member[], owner: string): Member[] {
    return members.filter((member) => member.owner !== owner);
  }

  async acquire({ key, hold, owner, others = [], ttlMs, turns = 1 }: AcquireRequest) {
    const { mode } = hold;
    if (mode !== 'exclusive' && !this.modes.includes(mode)) throw new Error('locks are exclusive, shared or permits');
    await delay(1);
    const members = this.counted(this.#locks.get(key) ?? []);
    const limits = mode === 'permits' ? [this.limitOf(members, hold.limit), hold.limit] : [];
    const smallerLimit = limits[0]! < limits[1]! && members[0]?.hold.mode === mode ? limits[0] : undefined;
    const since = this.now();
    const endsAt = since + ttlMs;
    const grants: Grant[] = [];
    for (const each of [owner, ...others]) {
      const member = members.find((found) => found.owner === each && !found.isKept);
      if (!member && !this.fits(members, hold)) break;
      if (member) this.prolong(member, endsAt, members);
      let fencingToken = member?.fencingToken;
      if (mode === 'shared') fencingToken ??= this.sharedToken(members);
      if (mode === 'exclusive') fencingToken = this.nextToken();
      if (mode === 'exclusive') this.#lastToken += turns - 1;
      const lastToken = mode === 'exclusive' ? this.#lastToken : undefined;
      if (!member) members.push({ owner: each, hold, fencingToken, since, endsAt });
      grants.push({ key, owner: each, hold, fencingToken, lastToken });
    }
    const [grant, ...rest] = grants;
    if (!grant) {
      const ends = members.map((member) => member.endsAt - this.now());
      const remainingMs = mode === 'exclusive' ? Math.max(...ends) : Math.min(...ends);
      const [first] = members;
      const seen = { owner: first!.owner, isKept: first!.isKept, remainingMs, smallerLimit };
      return { status: 'contended', queued: false, ...seen } as const;
    }
    this.#locks.set(key, members);
    return { status: 'acquired', grant, others: rest, smallerLimit } as const;
  }

  async extend({ grant: { key, owner }, ttlMs }: ExtendRequest) {
    await delay(1);
    const members = this.#locks.get(key) ?? [];
    const member = members.find((each) => each.owner === owner);
    if (!member || member.isKept || member.endsAt <= this.now()) {
      const isStolen = (!member || member.isKept) && this.counted(members).length > 0;
      return { status: 'lost', reason: isStolen ? 'stolen' : 'expired' } as const;
    }
    this.prolong(member, this.now() + ttlMs, members);
    return { status: 'extended' } as const;
  }

  async release({ key, owner }: Grant, { keepUntil }: Releasing) {
    await delay(1);
    const members = this.counted(this.#locks.get(key) ?? []);
    const member = members.find((each) => each.owner === owner);
    const keptForMs = (keepUntil ?? 0) - this.now();
    if (!member || (keptForMs > 0 && member.hold.mode !== 'exclusive')) return { status: 'gone' } as const;
    if (keptForMs > 0) Object.assign(member, { isKept: true, endsAt: this.now() + keptForMs });
    else this.#locks.set(key, this.without(members, owner));
    return { status: 'released' } as const;
  }

  async inspect(key: string): Promise<Holding | undefined> {
    await delay(1);
    return this.#holding(key);
  }

  async list({ match, limit }: ListRequest): Promise<Listed> {
    await delay(1);
    const fits = matcherOf(match);
    const locks = [...this.#locks.keys()].flatMap((key) => {
      const holding = fits(key) && this.#holding(key);
      return holding ? [{ key, holding }] : [];
    });
    return { locks: locks.slice(0, limit), complete: locks.length <= limit, scanned: this.#locks.size };
  }

  async forceRelease(key: string, from?: string) {
    await delay(1);
    const members = this.#locks.get(key)?.filter(({ endsAt }) => endsAt > this.now()) ?? [];
    const taken = members.map(({ owner }) => owner).filter((owner) => from === undefined || owner === from);
    if (taken.length === 0) return undefined;
    this.#locks.set(
      key,
      members.filter(({ owner }) => !taken.includes(owner)),
    );
    return { from: taken };
  }

  #holding(key: string): Holding | undefined {
    const now = this.now();
    const [first, ...rest] = (this.#locks.get(key) ?? [])
      .filter(({ endsAt }) => endsAt > now)
      .map(({ owner, hold, fencingToken, since, endsAt, isKept }) => {
        const { permits, limit } = hold.mode === 'permits' ? hold : {};
        return { owner, fencingToken, remainingMs: endsAt - now, heldForMs: now - since, isKept, permits, limit };
      });
    return first && { mode: this.#locks.get(key)![0]!.hold.mode, holders: [first, ...rest] };
  }
}
