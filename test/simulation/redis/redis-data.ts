import { createHash } from 'node:crypto';
import { compile, type CompiledScript } from '../lua/compile.js';
import { numberText } from '../lua/values.js';
import { SortedSet } from './sorted-set.js';

/** The contents of a key. A sorted set is changed in place. */
export interface Entry {
  readonly value: string | SortedSet;
  /** When it expires, in milliseconds since 1970; undefined: never. */
  readonly expiresAt?: number;
}

/** As it is now, whatever changes later. */
export function copyOf({ value, expiresAt }: Entry): Entry {
  return { value: value instanceof SortedSet ? new SortedSet(value.members) : value, expiresAt };
}

/** `['message', channel, text]`, `['pmessage', pattern, channel, text]`, `['subscribe', channel, count]` etc. */
export type Push = readonly [kind: string, channel: string, ...content: (string | number)[]];

/** A subscriber. */
export interface Subscriber {
  push(message: Push): void;
}

/** Subscribers of all channels whose names match. */
export interface PatternSubscription {
  readonly isMeant: RegExp;
  readonly subscribers: Set<Subscriber>;
}

/** A script that was compiled. */
export interface Script {
  readonly sha: string;
  readonly run: CompiledScript;
}

/** Compiled once, for all servers. */
const compiled = new Map<string, Script>();

/** The memory usage that a server reports, in bytes. */
export const USED_MEMORY = 1_000_000;

/** The data of a server: keys that expire, scripts, settings, and the subscribers of its channels. */
export class RedisData {
  readonly channels = new Map<string, Set<Subscriber>>();
  readonly shardChannels = new Map<string, Set<Subscriber>>();
  readonly patterns = new Map<string, PatternSubscription>();
  /** The scripts that EVALSHA knows, by the SHA-1 of their source. */
  readonly scripts = new Map<string, Script>();
  /** The settings that CONFIG knows, by name. */
  readonly settings = new Map([
    ['appendfsync', 'everysec'],
    ['appendonly', 'no'],
    ['cluster-node-timeout', '15000'],
    ['cluster-require-full-coverage', 'yes'],
    ['maxmemory', '0'],
    ['maxmemory-policy', 'noeviction'],
    ['save', ''],
  ]);
  readonly #keys = new Map<string, Entry>();
  /** The order of SCAN: each new key has the next number, and keeps it. */
  readonly #numbers = new Map<string, number>();
  #lastNumber = 0;
  readonly #nowUs: () => number;
  readonly #timeUs: () => number;
  /** While a script runs; time stands still for it. */
  #stoppedUs?: number;
  /** While changes of the primary are applied. */
  #isApplying = false;
  /** A replica treats expired keys as gone, and leaves their deletion to its primary. */
  isReplica = false;
  /** In a Cluster, sends a message to other nodes. */
  broadcast?: (kind: string, channel: string, text: string) => void;
  /** Called with each change, as a command that makes the same change elsewhere. */
  onEffect?: (effect: readonly string[]) => void;

  /**
   * @param nowUs the clock by which keys expire, in microseconds since 1970
   * @param timeUs the answer of TIME
   */
  constructor({ nowUs, timeUs = nowUs }: { nowUs: () => number; timeUs?: () => number }) {
    this.#nowUs = nowUs;
    this.#timeUs = timeUs;
  }

  /** Runs what takes no time, like a script. */
  inOneStep<T>(run: () => T): T {
    this.#stoppedUs = this.#nowUs();
    try {
      return run();
    } finally {
      this.#stoppedUs = undefined;
    }
  }

  /** In milliseconds since 1970. */
  get ms(): number {
    return Math.floor((this.#stoppedUs ?? this.#nowUs()) / 1_000);
  }

  /** The answer of TIME, in microseconds since 1970. */
  get timeUs(): number {
    return this.#timeUs();
  }

  /** The names of all keys, in the order in which they came. */
  get names(): string[] {
    return [...this.#keys.keys()].filter((key) => this.entry(key) !== undefined);
  }

  /** Whether it refuses everything that takes more memory. */
  get isFull(): boolean {
    const limit = Number(this.settings.get('maxmemory'));
    if (limit === 0 || limit >= USED_MEMORY) return false;
    if (this.settings.get('maxmemory-policy') === 'noeviction') return true;
    throw new Error('The simulated Redis evicts no keys.');
  }

  /** All keys as they are now. */
  copy(): (readonly [key: string, entry: Entry])[] {
    return this.names.map((key) => [key, copyOf(this.entry(key)!)]);
  }

  /**
   * A part of all keys: keys that exist from the first part to the last one are in one of them.
   * @param from the number of the first key, 0 at first
   * @param count how many keys are examined
   * @returns the begin of the next part; undefined: this is the last one
   */
  part(from: number, count: number): { readonly names: readonly string[]; readonly next?: number } {
    const names: string[] = [];
    for (const [key, number] of this.#numbers) {
      if (number < from) continue;
      if (names.length === count) return { names, next: number };
      if (this.entry(key) !== undefined) names.push(key);
    }
    return { names };
  }

  /** The current contents of the key. */
  entry(key: string): Entry | undefined {
    const entry = this.#keys.get(key);
    if (entry?.expiresAt === undefined || this.#isApplying || this.ms <= entry.expiresAt) return entry;
    if (!this.isReplica) this.change(key, undefined);
    return undefined;
  }

  change(key: string, entry: Entry | undefined): void {
    const before = this.#keys.get(key);
    if (entry) {
      this.#keys.set(key, entry);
      if (!this.#numbers.has(key)) this.#numbers.set(key, ++this.#lastNumber);
    } else {
      this.#keys.delete(key);
      this.#numbers.delete(key);
    }
    if (!this.onEffect || this.#isApplying) return;
    const isSame = entry !== undefined && typeof entry.value !== 'string' && entry.value === before?.value;
    const effects = isSame ? [expiryOf(key, entry)] : [...(before ? [['DEL', key]] : []), ...creationOf(key, entry)];
    for (const effect of effects) this.onEffect(effect);
  }

  /** @param members with their scores */
  addTo(key: string, set: SortedSet, members: readonly (readonly [member: string, score: number])[]): void {
    for (const [member, score] of members) set.set(member, score);
    if (this.#keys.get(key)?.value !== set) this.change(key, { value: set });
    else if (members.length > 0) this.#tell(additionOf(key, members));
  }

  /** @returns how many there were */
  removeFrom(key: string, set: SortedSet, members: readonly string[]): number {
    const removed = members.filter((member) => set.delete(member));
    if (removed.length > 0 && set.size > 0) this.#tell(['ZREM', key, ...removed]);
    if (set.size === 0) this.change(key, undefined);
    return removed.length;
  }

  flush(): void {
    this.#keys.clear();
    this.#numbers.clear();
    this.#tell(['FLUSHALL']);
  }

  /** Runs a change of the primary: it is not refused, and finds expired keys. */
  applying<T>(run: () => T): T {
    this.#isApplying = true;
    try {
      return run();
    } finally {
      this.#isApplying = false;
    }
  }

  get isReadOnly(): boolean {
    return this.isReplica && !this.#isApplying;
  }

  /** All its data, as commands. */
  get snapshot(): (readonly string[])[] {
    return [...this.#keys].flatMap(([key, entry]) => creationOf(key, entry));
  }

  /** Compiles a script, unless that was done before, so that EVALSHA knows it. */
  load(source: string): Script {
    let script = compiled.get(source);
    if (!script) {
      const sha = createHash('sha1').update(Buffer.from(source, 'latin1')).digest('hex');
      compiled.set(source, (script = { sha, run: compile(source) }));
    }
    this.scripts.set(script.sha, script);
    return script;
  }

  /** @returns how many subscribers here have got it */
  publish(channels: ReadonlyMap<string, ReadonlySet<Subscriber>>, kind: string, channel: string, text: string): number {
    if (this.broadcast) this.broadcast(kind, channel, text);
    else this.#tell([kind === 'message' ? 'PUBLISH' : 'SPUBLISH', channel, text]);
    return this.deliver(channels, kind, channel, text);
  }

  /**
   * To the subscribers here.
   * @returns their number
   */
  deliver(channels: ReadonlyMap<string, ReadonlySet<Subscriber>>, kind: string, channel: string, text: string): number {
    const subscribers = channels.get(channel) ?? new Set();
    for (const subscriber of subscribers) subscriber.push([kind, channel, text]);
    const matching = kind === 'message' ? [...this.patterns].filter(([, { isMeant }]) => isMeant.test(channel)) : [];
    for (const [pattern, { subscribers: others }] of matching)
      for (const subscriber of others) subscriber.push(['pmessage', pattern, channel, text]);
    return matching.reduce((sum, [, { subscribers: others }]) => sum + others.size, subscribers.size);
  }

  #tell(effect: readonly string[]): void {
    if (!this.#isApplying) this.onEffect?.(effect);
  }

  /** The connection has ended. */
  leave(subscriber: Subscriber): void {
    for (const channels of [this.channels, this.shardChannels])
      for (const subscribers of channels.values()) subscribers.delete(subscriber);
    for (const { subscribers } of this.patterns.values()) subscribers.delete(subscriber);
  }
}

/** The commands that create a key with its current contents. */
function creationOf(key: string, entry: Entry | undefined): (readonly string[])[] {
  if (!entry) return [];
  const { value, expiresAt } = entry;
  if (typeof value === 'string')
    return [['SET', key, value, ...(expiresAt === undefined ? [] : ['PXAT', String(expiresAt)])]];
  return [additionOf(key, value.members), ...(expiresAt === undefined ? [] : [expiryOf(key, entry)])];
}

function additionOf(key: string, members: SortedSet['members']): readonly string[] {
  return ['ZADD', key, ...members.flatMap(([member, score]) => [numberText(score, 17), member])];
}

function expiryOf(key: string, { expiresAt }: Entry): readonly string[] {
  return expiresAt === undefined ? ['PERSIST', key] : ['PEXPIREAT', key, String(expiresAt)];
}
