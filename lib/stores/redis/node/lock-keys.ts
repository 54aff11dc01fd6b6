import type { Hold } from '../../../core/backend/lock-backend.js';
import { clusterSlot, SLOTS, tagOfSlot } from '../client/cluster-slot.js';

/**
 * The format number of all keys and messages in Redis, see docs/protocol.md. Processes whose versions have the same number can share
 * locks.
 */
const PROTOCOL = 3;

/**
 * How many fencing counters there are:
 * - `one`: one for the whole server.
 * - `per-slot`: one for each slot of a Cluster, because a script may use the keys of one slot only.
 * - `sharded`: 4,096 on each node of a Redlock, because keys that share a counter disturb each other's votes.
 */
export type Counters = 'one' | 'per-slot' | 'sharded';

/** The number of fencing counters on a node of a Redlock. */
export const SHARDS = 4_096;

/** @param handsOver false for a node of a Redlock */
export function countersOf(handsOver: boolean, isCluster: boolean): Counters {
  if (isCluster) return 'per-slot';
  return handsOver ? 'one' : 'sharded';
}

/** The names of all keys and channels in Redis, see docs/protocol.md. The braces put the keys of a lock into one slot of a Cluster. */
export class LockKeys {
  /** @param clientPrefix the prefix that the client adds to every key: it affects the slot of the key */
  constructor(
    private readonly prefix: string,
    private readonly counters: Counters = 'one',
    private readonly clientPrefix = '',
  ) {}

  /** The lock itself: its value is the owner, with the fencing token of its grant. */
  lock(key: string): string {
    return `${this.prefix}:{${key}}`;
  }

  /**
   * The pattern for SCAN. Only the names of locks have a brace after the prefix and another one at the end. The pattern includes the
   * prefix of the client, because clients do not add it to patterns.
   * @param match the keys, where `*` matches any text. The pattern contains only the text before the first `*`, because the time that
   *   Redis needs can grow exponentially with the number of stars. The caller must filter the names by the rest
   */
  pattern(match: string): string {
    const [start = '', ...rest] = match.split('*');
    return `${(this.#head + start).replace(/[*?[\]\\]/g, '\\$&')}${rest.length > 0 ? '*' : ''}}`;
  }

  /** Returns the key of the lock with this name in Redis; undefined for a name of another program. */
  keyIn(name: string): string | undefined {
    const key = name.slice(this.#head.length, -1);
    return key === '' || key.startsWith('}') ? undefined : key;
  }

  /** The waiters for a lock. */
  queue(key: string): string {
    return `${this.prefix}:{${key}}:queue`;
  }

  /** The number of calls that wait for the lock in the process of its holder. */
  calls(key: string): string {
    return `${this.prefix}:{${key}}:calls`;
  }

  /** The fencing counter of a lock, which other locks share. */
  fence(key: string): string {
    switch (this.counters) {
      case 'one':
        return `${this.prefix}:fence`;
      case 'per-slot':
        return `${this.prefix}:fence{${this.#slotTag(key)}}`;
      case 'sharded':
        return `${this.prefix}:fence:${clusterSlot(this.lock(key)) % SHARDS}`;
    }
  }

  /** All counters that may exist. */
  get fences(): string[] {
    switch (this.counters) {
      case 'one':
        return [`${this.prefix}:fence`];
      case 'per-slot':
        return Array.from({ length: SLOTS }, (_, slot) => `${this.prefix}:fence{${tagOfSlot(slot)}}`);
      case 'sharded':
        return Array.from({ length: SHARDS }, (_, shard) => `${this.prefix}:fence:${shard}`);
    }
  }

  /**
   * The counter for the release of a lock, which may hand it over. A node of a Redlock grants nothing by itself, so there all releases
   * name the same counter and can share a call.
   */
  fenceToHandOver(key: string): string {
    return this.counters === 'sharded' ? `${this.prefix}:fence` : this.fence(key);
  }

  /** Where a node of a Redlock records its restarts. A Cluster has no such record: it gets a name in the slot of the key. */
  admission(key?: string): string {
    return this.counters === 'per-slot' && key !== undefined
      ? `${this.prefix}:admission{${this.#slotTag(key)}}`
      : `${this.prefix}:admission`;
  }

  /** The channel of a process, or the beginning of all such channels. Queue entries contain it as one word. */
  inbox(processName = ''): string {
    return `${this.prefix}:inbox:${PROTOCOL}:${processName}`.replace(/\s/g, '_');
  }

  /** The channel of a process for the locks in a slot of a Cluster. The channel is in the same slot. @param inbox the result of `inbox` */
  channelOf(slot: number, inbox: string): string {
    return `${inbox}:{${tagOfSlot(slot)}}`;
  }

  /** The beginning of the names of all locks in Redis. */
  get #head(): string {
    return `${this.clientPrefix}${this.prefix}:{`;
  }

  #slotTag(key: string): string {
    return tagOfSlot(clusterSlot(this.clientPrefix + this.lock(key)));
  }
}

/** The value of a lock in Redis: `<owner>@<token of 16 digits>`, and `+` if its queue may have waiters, or `=` if it is kept. */
const VALUE = /^(.+)@(\d{16})([+=]?)$/s;

/** The value of a lock with several holders: a common beginning, then a space and four words for each holder. */
const HOLDER_SET = /^~(?:p|s@(\d{16}))((?: \d+ \d+ \d+ \S+)+)$/;

/** One of several holders of a lock. */
export interface Member {
  owner: string;
  /** By the clock of the server, in milliseconds. */
  endsAt: number;
  permits: number;
  /** The limit of permits that this holder named. */
  limit: number;
}

/** The holders of a shared lock or of permits. Some of them may have expired. */
export interface HolderSet {
  mode: 'shared' | 'permits';
  /** The token of all who share the lock. */
  fencingToken?: number;
  /** In the order of their arrival. */
  members: [Member, ...Member[]];
}

/** The content of a lock's value. */
export interface LockValue {
  owner: string;
  /** The token of the grant, or the last one of a block. Undefined for a value from another program. */
  fencingToken?: number;
  /** The work of the owner has ended, and the lock is kept until it expires. */
  isKept?: true;
}

/** The part of the value that scripts compare. Without the @, the owner `x/1` would match the value of `x/10`. */
export function ownerPart(owner: string): string {
  return `${owner}@`;
}

/** A token in the form of scripts and values: texts of equal length compare like numbers. */
export function tokenText(fencingToken: number): string {
  return String(fencingToken).padStart(16, '0');
}

/** The value of a lock that nobody waits for. */
export function valueText(owner: string, fencingToken: number): string {
  return ownerPart(owner) + tokenText(fencingToken);
}

/** Reads the value of a lock with several holders; undefined for any other value. */
export function readHolderSet(value: string): HolderSet | undefined {
  const [, token, list] = HOLDER_SET.exec(value) ?? [];
  if (list === undefined) return undefined;
  const words = list.slice(1).split(' ');
  const members: Member[] = [];
  for (let at = 0; at < words.length; at += 4) {
    const [endsAt, permits, limit, owner] = words.slice(at, at + 4) as [string, string, string, string];
    members.push({ owner, endsAt: Number(endsAt), permits: Number(permits), limit: Number(limit) });
  }
  const mode = token === undefined ? 'permits' : 'shared';
  const fencingToken = token === undefined ? undefined : Number(token);
  return { mode, fencingToken, members: members as HolderSet['members'] };
}

/** Reads a value. For a value from another program, the whole text is the owner. If there are several holders, the last to expire is the owner. */
export function readValue(value: string): LockValue {
  const holderSet = value.startsWith('~') ? readHolderSet(value) : undefined;
  if (holderSet) {
    const { owner } = holderSet.members.reduce((last, each) => (each.endsAt > last.endsAt ? each : last));
    return { owner, fencingToken: holderSet.fencingToken };
  }
  const [, owner, token, flag] = VALUE.exec(value) ?? [];
  if (owner === undefined) return { owner: value };
  return { owner, fencingToken: Number(token), isKept: flag === '=' || undefined };
}

/**
 * How `lua/parts/serve.lua` serves a place whose turn has come: with a grant, or on a node of a Redlock, which cannot grant alone, with
 * a wake-up.
 */
export type Service = 'grant' | 'wake';

const KINDS: Record<Service, string> = { grant: 'g', wake: 'w' };

/**
 * The sign that a process gives in a queue with each attempt:
 * - `LISTENING`: it gets a grant only if its channel has listeners. In a Cluster that is the channel of the slot.
 * - `UNVERIFIED`: it gets a grant in any case. It does not listen yet, or it listens in a Cluster without sharded messages, where
 *   PUBLISH counts the listeners of one node only.
 * - `NOT_LISTENING`: it gets a grant, but no message, which would go to all nodes of a Cluster.
 */
export const [LISTENING, UNVERIFIED, NOT_LISTENING] = ['h', 'u', 'd'] as const;

export type Sign = typeof LISTENING | typeof UNVERIFIED | typeof NOT_LISTENING;

/**
 * An entry in the queue of a lock: how to serve it, the channel of its process, and its ticket. The message on that channel contains the
 * ticket, and the fencing tokens of a grant. A granted lock has the ticket as its owner value.
 * @param turns the number of tokens to grant with the lock
 */
export function queueEntry(service: Service, channel: string, ticket: string, turns: number): string {
  return `${KINDS[service]} ${channel} ${ticket}${service === 'grant' ? `~${turns}` : ''}`;
}

/** A shared lock or permits, in the form of `acquire-together.lua`. */
export function holdArgs(hold: Exclude<Hold, { mode: 'exclusive' }>): [kind: string, permits: number, limit: number] {
  return hold.mode === 'shared' ? ['s', 1, 0] : ['p', hold.permits, hold.limit];
}

/** The queue entry for a shared lock or permits. */
export function togetherEntry(hold: Exclude<Hold, { mode: 'exclusive' }>, channel: string, ticket: string): string {
  const [kind, permits, limit] = holdArgs(hold);
  return `${kind}${kind === 'p' ? `${permits}/${limit}` : ''} ${channel} ${ticket}`;
}
