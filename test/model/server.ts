/** What stands in a lock: its owner and, unless another program wrote it, the token of its grant. */
export interface Lock {
  owner: string;
  token?: number;
  /** The first token of its grant, where that has several. */
  first?: number;
  /** The + at the end of the value: there may be a queue. */
  mayHaveQueue?: boolean;
}

/** A place in a queue. */
export interface Place {
  ticket: string;
  /** That of its process. */
  channel: string;
  /** For how many turns the lock is handed over to it. */
  turns: number;
}

/** Whether a process says that it listens. */
export type Sign = 'h' | 'u';

/** The times of the last signs that the processes of a queue gave, by channel. */
export type Signs = Record<string, Partial<Record<Sign, number>>>;

/** A process is silent if another has given a sign so much later, in microseconds. */
const SILENT_US = 2_000_000;

/** What one server, or one slot of a Cluster, knows. The scripts change it. */
export interface Server {
  /** The highest token minted. */
  counter?: number;
  locks: Record<string, Lock | undefined>;
  queues: Record<string, Place[]>;
  signs: Record<string, Signs>;
  /** The channels that are listened to. */
  listening: readonly string[];
}

/** What a script knows when it mints. */
export interface Known {
  /** The time of the server, which stands still during a call. */
  us: number;
  counter?: number;
  /** The last token that this call has minted before. */
  minted?: number;
  /** Whether a block has as many tokens as it is to have also where the counter has reached the time. */
  isWhole?: boolean;
}

/** How far ahead of the time the blocks of one call reach together, in microseconds. */
const MOST_AHEAD_US = 1_000;

/** Mints `count` tokens from `first` to `last`, and says what is in the counter afterwards. */
export type Mint = (known: Known, count: number) => { first: number; last: number; counter?: number };

export const mint: Mint = ({ us, counter, minted, isWhole }, count) => {
  const first = Math.max(us, (minted ?? counter ?? 0) + 1);
  if (isWhole) return { first, last: first + count - 1, counter: first + count - 1 };
  const isAhead = minted === undefined && first > us;
  const most = isAhead ? 1 : Math.max(1, us + MOST_AHEAD_US - first + 1);
  const last = first + Math.min(count, most) - 1;
  return { first, last, counter: last };
};

/** `gave`: 1 when the lock was given back in the same step, 0 when nobody held it, -1 when another owner did. */
export type Answer =
  { granted: number; last?: number; gave?: number } | { refused: Lock; gave?: number } | { takenFrom: Lock } | number;

/**
 * One call of a script on one server, which runs it for one lock after the other: the scripts of lib/stores/redis/scripts/lua
 * as functions. test/model/one-server.conformance.test.ts holds them against the Lua.
 */
export class Call {
  #minted?: number;
  #reserved?: number;
  /** What was published: the ticket and the tokens of each hand-off. */
  readonly messages: string[] = [];

  constructor(
    private readonly server: Server,
    private readonly us: number,
    private readonly mintTokens: Mint = mint,
    /** The time of the signs that are given. */
    private readonly signsAt = us,
  ) {}

  /** @param locks how many locks the call is for: its first grant reserves a token for each */
  acquire(key: string, owner: string, locks: number): Answer {
    const lock = this.server.locks[key];
    if (lock) return lock.owner === owner ? { granted: lock.token! } : { refused: lock };
    const token = this.#reserved ?? this.#mint(locks, true).first;
    this.#reserved = token + 1;
    this.server.locks[key] = { owner, token };
    return { granted: token };
  }

  /**
   * @param give owner that gives the lock back in the same step
   * @param place of the waiter, if it takes one in the queue: the last one
   * @param sign of its process
   */
  turn(key: string, give: string, owner: string, count: number, place: Place | undefined, sign: Sign): Answer {
    const { locks, queues } = this.server;
    const queue = (queues[key] ??= []);
    let lock = locks[key];
    let gave = 0;
    if (give !== '' && lock) gave = lock.owner === give ? 1 : -1;
    if (gave === 1) lock = locks[key] = undefined;
    const isMine = () => lock?.owner === owner;
    const goesToFirst = !lock && queue[0] !== undefined && queue[0].ticket !== place?.ticket;
    if (place && !isMine() && (lock || goesToFirst)) {
      if (!queue.some(({ ticket }) => ticket === place.ticket)) queue.push(place);
      if (lock?.token !== undefined) locks[key] = { ...lock, mayHaveQueue: true };
      ((this.server.signs[key] ??= {})[place.channel] ??= {})[sign] = this.signsAt;
    }
    if (goesToFirst) {
      this.#handOff(key);
      lock = locks[key];
    }
    if (lock && !isMine()) return { refused: lock, gave };
    const { first, last } = this.#mint(count);
    locks[key] = { owner, token: last, first, mayHaveQueue: true };
    if (place) this.#leave(key, place.ticket);
    return { granted: first, last, gave };
  }

  release(key: string, owner: string): Answer {
    const { locks } = this.server;
    const lock = locks[key];
    if (lock?.owner !== owner) return lock ? -1 : 0;
    if (lock.mayHaveQueue) this.#handOff(key);
    else delete locks[key];
    return 1;
  }

  transfer(key: string, from: string, to: string, mints: boolean): Answer {
    const { locks } = this.server;
    const lock = locks[key];
    if (!lock) return 0;
    if (lock.owner !== to && (lock.owner !== from || lock.token === undefined)) return -1;
    const token = mints && lock.owner === from && from !== to ? this.#mint(1).first : lock.token!;
    locks[key] = { owner: to, token, mayHaveQueue: lock.mayHaveQueue };
    return { granted: token };
  }

  withdraw(key: string, owner: string): Answer {
    this.#leave(key, owner);
    if (this.server.locks[key]?.owner !== owner) return 0;
    this.#handOff(key);
    return 1;
  }

  forceRelease(key: string): Answer {
    const lock = this.server.locks[key];
    if (!lock) return 0;
    this.#handOff(key);
    return { takenFrom: lock };
  }

  #mint(count: number, isWhole = false): { first: number; last: number } {
    const known = { us: this.us, counter: this.server.counter, minted: this.#minted, isWhole };
    const { first, last, counter } = this.mintTokens(known, count);
    this.server.counter = counter;
    this.#minted = last;
    return { first, last };
  }

  #handOff(key: string): void {
    const { locks, queues } = this.server;
    delete locks[key];
    for (let place = queues[key]?.[0]; place; place = queues[key]![0]) {
      const isReached = this.#isReached(key, place);
      this.#leave(key, place.ticket);
      if (!isReached) continue;
      const { first, last } = this.#mint(place.turns);
      locks[key] = { owner: place.ticket, token: last, first, mayHaveQueue: true };
      this.messages.push([place.ticket, ...[first, last].map((token) => String(token).padStart(16, '0'))].join(' '));
      return;
    }
  }

  /** Whether its process is granted the lock: it is not silent, and it listens, or has said that it does not. */
  #isReached(key: string, { channel }: Place): boolean {
    const { signs, listening } = this.server;
    const all = signs[key] ?? {};
    const { h = 0, u = 0 } = all[channel] ?? {};
    const latest = Math.max(0, ...Object.values(all).flatMap((times) => Object.values(times)));
    return latest - Math.max(h, u) <= SILENT_US && (u > h || listening.includes(channel));
  }

  /** The signs leave with the last place. */
  #leave(key: string, left: string): void {
    const { queues, signs } = this.server;
    queues[key] = (queues[key] ?? []).filter(({ ticket }) => ticket !== left);
    if (queues[key].length === 0) delete signs[key];
  }
}
