import { createHash } from 'node:crypto';
import { compile, type CompiledScript } from '../lua/compile.js';
import { SortedSet } from './sorted-set.js';

/** What is under a key. A sorted set is changed in place. */
export interface Entry {
  readonly value: string | SortedSet | List;
  /** When it expires, in milliseconds since 1970; undefined: never. */
  readonly expiresAt?: number;
}

export type List = readonly string[];

/** As it is now, whatever changes later. */
export function copyOf({ value, expiresAt }: Entry): Entry {
  return { value: value instanceof SortedSet ? new SortedSet(value.members) : value, expiresAt };
}

/** One that subscribes: gets each message as `['message', channel, text]`, and `subscribe` and the like. */
export interface Subscriber {
  push(message: readonly [kind: string, channel: string, content: string | number]): void;
}

/** A script that was compiled. */
export interface Script {
  readonly sha: string;
  readonly run: CompiledScript;
}

/** Compiled once, for all servers. */
const compiled = new Map<string, Script>();

/** How much memory a server says that it uses, in bytes. */
export const USED_MEMORY = 1_000_000;

/** What a server has: keys that expire, scripts, settings, and who subscribes to its channels. */
export class RedisData {
  readonly channels = new Map<string, Set<Subscriber>>();
  readonly shardChannels = new Map<string, Set<Subscriber>>();
  /** Those that EVALSHA knows, by the SHA-1 of their source. */
  readonly scripts = new Map<string, Script>();
  /** What CONFIG knows, by name. */
  readonly settings = new Map([
    ['appendfsync', 'everysec'],
    ['appendonly', 'no'],
    ['maxmemory', '0'],
    ['maxmemory-policy', 'noeviction'],
    ['save', ''],
  ]);
  readonly #keys = new Map<string, Entry>();
  /** By which SCAN goes on: each key that comes has the next number, and keeps it. */
  readonly #numbers = new Map<string, number>();
  #lastNumber = 0;
  readonly #nowUs: () => number;
  readonly #timeUs: () => number;
  /** While a script runs, for which time stands still. */
  #stoppedUs?: number;

  /**
   * @param nowUs the clock by which keys expire, in microseconds since 1970
   * @param timeUs what TIME answers
   */
  constructor({ nowUs, timeUs = nowUs }: { nowUs: () => number; timeUs?: () => number }) {
    this.#nowUs = nowUs;
    this.#timeUs = timeUs;
  }

  /** Runs what takes no time, as a script does. */
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

  /** What TIME answers, in microseconds since 1970. */
  get timeUs(): number {
    return this.#timeUs();
  }

  /** The names of all keys, in the order in which they came. */
  get names(): string[] {
    return [...this.#keys.keys()].filter((key) => this.entry(key) !== undefined);
  }

  /** Whether it refuses whatever takes more memory. */
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
   * A part of all keys: those that are there from the first part to the last one are in one of them.
   *
   * @param from the number of the first key, 0 at first
   * @param count how many keys are looked at
   * @returns where the next part begins; undefined: this is the last one
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

  /** What is under the key now. */
  entry(key: string): Entry | undefined {
    const entry = this.#keys.get(key);
    if (entry?.expiresAt === undefined || this.ms <= entry.expiresAt) return entry;
    this.change(key, undefined);
    return undefined;
  }

  change(key: string, entry: Entry | undefined): void {
    if (entry) {
      this.#keys.set(key, entry);
      if (!this.#numbers.has(key)) this.#numbers.set(key, ++this.#lastNumber);
    } else {
      this.#keys.delete(key);
      this.#numbers.delete(key);
    }
  }

  flush(): void {
    this.#keys.clear();
    this.#numbers.clear();
  }

  /** Compiles a script, if that was not done yet, so that EVALSHA knows it. */
  load(source: string): Script {
    let script = compiled.get(source);
    if (!script) {
      const sha = createHash('sha1').update(Buffer.from(source, 'latin1')).digest('hex');
      compiled.set(source, (script = { sha, run: compile(source) }));
    }
    this.scripts.set(script.sha, script);
    return script;
  }

  publish(channels: ReadonlyMap<string, ReadonlySet<Subscriber>>, kind: string, channel: string, text: string): number {
    const subscribers = channels.get(channel) ?? new Set();
    for (const subscriber of subscribers) subscriber.push([kind, channel, text]);
    return subscribers.size;
  }

  /** The connection has ended. */
  leave(subscriber: Subscriber): void {
    for (const channels of [this.channels, this.shardChannels])
      for (const subscribers of channels.values()) subscribers.delete(subscriber);
  }
}
