/** A process that is silent for this long may be passed over, in milliseconds: less than in the statement. */
const MAY_BE_SILENT_MS = 1_500;
/** How long a lock that was handed over lasts unless it is confirmed, in milliseconds. */
export const GRANT_TTL_MS = 2_000;

/** What granted the lock. */
interface Granted {
  readonly key: string;
  readonly owner: string;
  readonly first: number;
  readonly last: number;
  readonly sentAt: number;
  /** The number of its place; undefined: it does not wait. */
  readonly number?: number;
  /** A contender that had a place in the queue all the time, unless it was served or left meanwhile. */
  readonly before?: readonly Place[];
}

interface Grant extends Granted {
  readonly answeredAt: number;
}

/** A place in a queue, as its waiting owner knows it. */
export class Place {
  /** Since when it is known to be in the queue. */
  since = Infinity;
  leftAt = Infinity;
  /** The first token that it was granted. */
  token = Infinity;
  /** When the lock was handed over to it. */
  readonly served: number[] = [];
  /** When it first learned that it had no place, without a known reason. */
  #missedAt?: number;
  #lastAskedAt = 0;
  tell!: (told: { sentAt: number }) => void;
  readonly told = new Promise<{ sentAt: number }>((resolve) => (this.tell = resolve));

  constructor(
    readonly key: string,
    readonly ticket: string,
    readonly number: number,
  ) {}

  /**
   * It was requested.
   * @param isThere whether it had been there, or is not needed any more
   */
  asked(sentAt: number, isThere: boolean): void {
    // It may have been passed over.
    if (this.since < Infinity && !isThere && !this.mayBeSilentAt(performance.now()))
      this.#missedAt ??= performance.now();
    this.#lastAskedAt = sentAt;
    if (this.since === Infinity) this.since = performance.now();
  }

  /** Not if it was served before, and the message was lost. The answer about that may have been read later. */
  get isLost(): boolean {
    const missedAt = this.#missedAt;
    return missedAt !== undefined && !this.served.some((sentAt) => sentAt < missedAt);
  }

  left(at: number): void {
    this.leftAt = at;
  }

  mayBeSilentAt(at: number): boolean {
    return at - this.#lastAskedAt > MAY_BE_SILENT_MS;
  }
}

/** The time during which a holder relies on a lock. */
class Use {
  readonly from = performance.now();

  until: number;

  /** @param sentAt when the lock was requested */
  constructor(
    readonly key: string,
    readonly owner: string,
    readonly sentAt: number,
    ttlMs: number,
  ) {
    this.until = sentAt + ttlMs;
  }

  ends(at: number): void {
    this.until = Math.min(this.until, at);
  }
}

/** A forced release. */
interface Seizure {
  readonly sentAt: number;
  readonly answeredAt: number;
}

/** The events of a race, as its participants know them; and whether they may happen. All times are of one clock. */
export class RaceRecord {
  readonly grants: Grant[] = [];
  readonly #uses: Use[] = [];
  /** By key and holder. A holder that is served again, because it still had a place, may lose the lock again. */
  readonly #seizures = new Map<string, Seizure[]>();
  readonly #places = new Map<string, Place>();
  readonly #waiting = new Map<string, Set<Place>>();
  readonly errors = new Map<string, number>();
  handedOver = 0;
  late = 0;
  swept = 0;
  forced = 0;

  /** Whether it contains the events that few races have. */
  get hasAll(): boolean {
    return this.handedOver > 0 && this.swept > 0 && this.forced > 0;
  }

  place(key: string, ticket: string, number: number): Place {
    const place = new Place(key, ticket, number);
    this.#places.set(ticket, place);
    const waiting = this.#waiting.get(key) ?? new Set();
    this.#waiting.set(key, waiting.add(place));
    return place;
  }

  /** The contenders in the queue now, as far as is known. */
  waitingFor(key: string, at: number): Place[] {
    const waiting = this.#waiting.get(key) ?? new Set();
    for (const place of waiting) if (place.leftAt < at || place.token < Infinity) waiting.delete(place);
    return [...waiting].filter((place) => place.since < at && !place.mayBeSilentAt(at));
  }

  grant(granted: Granted): void {
    const answeredAt = performance.now();
    const place = this.#places.get(granted.owner);
    if (place) place.token = Math.min(place.token, granted.first);
    const { number = Infinity, before = [] } = granted;
    const earlier = before.filter(
      (other) => other !== place && other.number < number && !other.mayBeSilentAt(answeredAt),
    );
    this.grants.push({ ...granted, answeredAt, before: earlier });
  }

  handOver(granted: Granted, isTold: boolean): void {
    const place = this.#places.get(granted.owner);
    this.handedOver++;
    this.grant({ ...granted, number: place?.number });
    if (!place) return;
    place.served.push(granted.sentAt);
    if (isTold) place.tell(granted);
  }

  /** @returns undefined if its lease has already ended */
  begins(key: string, owner: string, sentAt: number, ttlMs: number): Use | undefined {
    const use = new Use(key, owner, sentAt, ttlMs);
    if (use.from >= use.until) {
      this.late++;
      return undefined;
    }
    this.#uses.push(use);
    return use;
  }

  seized(key: string, holder: string, sentAt: number): void {
    const id = idOf(key, holder);
    this.#seizures.set(id, [...(this.#seizures.get(id) ?? []), { sentAt, answeredAt: performance.now() }]);
    this.forced++;
  }

  failed(code: string): void {
    this.errors.set(code, (this.errors.get(code) ?? 0) + 1);
  }

  /** @returns the errors, as sentences */
  problems(): string[] {
    // A contender that was granted a lock may begin with it after a forced release.
    for (const use of this.#uses)
      for (const { answeredAt, sentAt } of this.#seizures.get(idOf(use.key, use.owner)) ?? [])
        if (answeredAt > use.sentAt) use.ends(sentAt);
    const found: string[] = [];
    for (const key of new Set(this.grants.map((grant) => grant.key))) {
      const grants = this.grants.filter((grant) => grant.key === key);
      const uses = this.#uses.filter((use) => use.key === key && use.until > use.from);
      found.push(...overlaps(uses), ...sharedTokens(grants), ...tokensBack(grants), ...outOfOrder(grants));
    }
    for (const place of this.#places.values()) {
      const { isLost, key, served, ticket } = place;
      if (isLost) found.push(`the place ${ticket} for ${key} was lost`);
      const isTwice = served.some((at, index) => index > 0 && at < served[index - 1]! + GRANT_TTL_MS);
      if (isTwice && !this.#seizures.has(idOf(key, ticket)))
        found.push(`the place ${ticket} for ${key} was served twice`);
    }
    return found;
  }
}

function idOf(key: string, owner: string): string {
  return `${owner} ${key}`;
}

function overlaps(uses: Use[]): string[] {
  const sorted = uses.sort((one, other) => one.from - other.from);
  let latest: Use | undefined;
  const found: string[] = [];
  for (const use of sorted) {
    if (latest && use.from < latest.until && use.owner !== latest.owner)
      found.push(`${latest.owner} and ${use.owner} held ${use.key} at once, for ${latest.until - use.from} ms`);
    if (!latest || use.until > latest.until) latest = use;
  }
  return found;
}

function sharedTokens(grants: readonly Grant[]): string[] {
  const sorted = [...grants].sort((one, other) => one.first - other.first);
  return sorted
    .filter(({ first }, at) => at > 0 && first <= sorted[at - 1]!.last)
    .map(({ key, owner, first }) => `${owner} has the token ${first} of ${key}, as another one has`);
}

/** An attempt that was answered before another one was sent has the smaller tokens. */
function tokensBack(grants: readonly Grant[]): string[] {
  const answered = [...grants].sort((one, other) => one.answeredAt - other.answeredAt);
  const found: string[] = [];
  let [at, highest] = [0, 0];
  for (const grant of [...grants].sort((one, other) => one.sentAt - other.sentAt)) {
    for (; at < answered.length && answered[at]!.answeredAt < grant.sentAt; at++)
      highest = Math.max(highest, answered[at]!.last);
    if (grant.first <= highest)
      found.push(`${grant.owner} was granted ${grant.first} of ${grant.key} after ${highest}`);
  }
  return found;
}

/** A contender that waited all the time with a smaller number was served before. */
function outOfOrder(grants: readonly Grant[]): string[] {
  return grants.flatMap(({ answeredAt, before = [], first, key, owner }) =>
    before
      .filter((place) => place.leftAt > answeredAt && place.token > first)
      .map((place) => `${owner} was granted ${key} before ${place.ticket}, which came earlier`),
  );
}
