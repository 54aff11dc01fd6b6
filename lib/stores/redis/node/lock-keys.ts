import type { Hold } from '../../../core/backend/lock-backend.js';
import { clusterSlot, SLOTS, tagOfSlot } from '../client/cluster-slot.js';

/**
 * The format number of all keys and messages in Redis, see docs/protocol.md: processes that run versions with the same
 * number can share locks.
 */
const PROTOCOL = 3;

/**
 * How many fencing counters there are: one for a server; one for each slot of a Cluster, as a script may use the keys of one
 * slot only; and on each node of a Redlock one for each of 4,096 shards, since keys that share a counter disturb each other's
 * votes.
 */
export type Counters = 'one' | 'per-slot' | 'sharded';

/** The number of fencing counters on a node of a Redlock. */
export const SHARDS = 4_096;

/** @param handsOver whether a node keeps locks alone; if not, it is a node of a Redlock */
export function countersOf(handsOver: boolean, isCluster: boolean): Counters {
  if (isCluster) return 'per-slot';
  return handsOver ? 'one' : 'sharded';
}

/** The names of all keys and channels in Redis, see docs/protocol.md. The braces put the keys of a lock into one slot of a Cluster. */
export class LockKeys {
  /** @param clientPrefix what the client puts before every key: a part of what its slot is made of */
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
   * The pattern by which SCAN finds locks: their names alone end with a brace and have one behind the prefix. It has the prefix
   * of the client, which no client puts before a pattern.
   * @param match their keys, in which `*` stands for any text. Only what stands before the first one is in the pattern: the time
   *   that Redis takes explodes with the number of stars. The rest is for whoever reads the names
   */
  pattern(match: string): string {
    const [start = '', ...rest] = match.split('*');
    return `${(this.#head + start).replace(/[*?[\]\\]/g, '\\$&')}${rest.length > 0 ? '*' : ''}}`;
  }

  /** The key of a lock, by the name that SCAN has found; undefined where another program has used a name that no lock has. */
  keyIn(name: string): string | undefined {
    const key = name.slice(this.#head.length, -1);
    return key === '' || key.startsWith('}') ? undefined : key;
  }

  /** The waiters for a lock. */
  queue(key: string): string {
    return `${this.prefix}:{${key}}:queue`;
  }

  /** How many calls wait behind the lock in the process of its holder. */
  calls(key: string): string {
    return `${this.prefix}:{${key}}:calls`;
  }

  /** The fencing counter of a lock, which it shares with others. */
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

  /** All counters that there may be. */
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
   * The counter for a lock that is given back, and perhaps handed over. A node of a Redlock grants nothing by itself: there
   * it is the same for all, so that releases can share a call.
   */
  fenceToHandOver(key: string): string {
    return this.counters === 'sharded' ? `${this.prefix}:fence` : this.fence(key);
  }

  /** What a node of a Redlock remembers of its own restarts. For a Cluster, which is not asked for that, a name in the slot of the key. */
  admission(key?: string): string {
    return this.counters === 'per-slot' && key !== undefined
      ? `${this.prefix}:admission{${this.#slotTag(key)}}`
      : `${this.prefix}:admission`;
  }

  /** The channel of a process, or what the channels of all processes begin with. It is one word of a queue's entry. */
  inbox(processName = ''): string {
    return `${this.prefix}:inbox:${PROTOCOL}:${processName}`.replace(/\s/g, '_');
  }

  /** The channel of a process, by its `inbox`, for the locks in a slot of a Cluster. It is in that slot, too. */
  channelOf(slot: number, inbox: string): string {
    return `${inbox}:{${tagOfSlot(slot)}}`;
  }

  /** The beginning of the names of all locks, as Redis has them. */
  get #head(): string {
    return `${this.clientPrefix}${this.prefix}:{`;
  }

  #slotTag(key: string): string {
    return tagOfSlot(clusterSlot(this.clientPrefix + this.lock(key)));
  }
}

/** The value of a lock in Redis: `<owner>@<token of 16 digits>`, and `+` if its queue may have waiters, or `=` if it is kept. */
const VALUE = /^(.+)@(\d{16})([+=]?)$/s;

/** The value of a lock that several hold: what all of them have, and for each a space and four words. */
const HOLDER_SET = /^~(?:p|s@(\d{16}))((?: \d+ \d+ \d+ \S+)+)$/;

/** One of several who hold a lock. */
export interface Member {
  owner: string;
  /** By the clock of the server, in milliseconds. */
  endsAt: number;
  permits: number;
  /** The limit of permits that it named. */
  limit: number;
}

/** Those who hold a lock together. The time of some of them may be over. */
export interface HolderSet {
  mode: 'shared' | 'permits';
  /** The token of all who share the lock. */
  fencingToken?: number;
  /** In the order of their arrival. */
  members: [Member, ...Member[]];
}

/** The holder of a lock, as its value shows. */
export interface LockValue {
  owner: string;
  /** The token of its grant: the last one of a block. Undefined in a value that another program wrote. */
  fencingToken?: number;
  /** The work of the owner has ended, and the lock stands until its time is over. */
  isKept?: true;
}

/** The part of the value that scripts compare: without its end, the owner `x/1` would be found in a value of `x/10`. */
export function ownerPart(owner: string): string {
  return `${owner}@`;
}

/** A token as scripts take it, and values have it: texts of one length compare like numbers. */
export function tokenText(fencingToken: number): string {
  return String(fencingToken).padStart(16, '0');
}

/** The value of a lock that nobody waits for. */
export function valueText(owner: string, fencingToken: number): string {
  return ownerPart(owner) + tokenText(fencingToken);
}

/** Reads the value of a lock that several hold; undefined for any other. */
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

/** Reads a value. One that another program wrote is the owner as it is; of several who hold a lock it is the last one to end. */
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
 * How `lua/parts/hand-off.lua` serves a place whose turn has come: a `wake` is for a Redlock, where no node can grant alone.
 */
export type Service = 'grant' | 'wake';

const KINDS: Record<Service, string> = { grant: 'g', wake: 'w' };

/**
 * The sign that a process gives in a queue with each attempt. Of one that is `LISTENING` a grant needs listeners; if there are
 * none, the next place is served. In a Cluster those of the channel of the slot are counted. One that is `UNVERIFIED` is granted
 * the lock in any case: it does not listen yet, or listens to messages for all nodes of a Cluster, where PUBLISH counts the
 * listeners of one node only. One that is `NOT_LISTENING` does not listen, and is sent no message, which would go to all nodes.
 */
export const [LISTENING, UNVERIFIED, NOT_LISTENING] = ['h', 'u', 'd'] as const;

export type Sign = typeof LISTENING | typeof UNVERIFIED | typeof NOT_LISTENING;

/**
 * An entry in the queue of a lock: how to serve it, the channel that its process listens to, and its ticket, which is
 * published there, with fencing tokens if the lock was granted to it. A lock that is granted holds the ticket as
 * its owner value.
 * @param turns how many tokens are granted with the lock
 */
export function queueEntry(service: Service, channel: string, ticket: string, turns: number): string {
  return `${KINDS[service]} ${channel} ${ticket}${service === 'grant' ? `~${turns}` : ''}`;
}

/** What one asks for who holds a lock together with others, as `acquire-together.lua` takes it: kind, permits, and limit. */
export function holdArgs(hold: Exclude<Hold, { mode: 'exclusive' }>): [kind: string, permits: number, limit: number] {
  return hold.mode === 'shared' ? ['s', 1, 0] : ['p', hold.permits, hold.limit];
}

/** The entry of one who will hold the lock together with others. */
export function togetherEntry(hold: Exclude<Hold, { mode: 'exclusive' }>, channel: string, ticket: string): string {
  const [kind, permits, limit] = holdArgs(hold);
  return `${kind}${kind === 'p' ? `${permits}/${limit}` : ''} ${channel} ${ticket}`;
}
