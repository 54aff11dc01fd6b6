import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { inTime } from '../../../core/time/time-limit.js';
import { CommandFault, type RedisClient, type ShardedSubscription } from '../client/redis-client.js';
import { ECHO, ECHO_LIMIT_MS, HEARD_LATELY_MS, type Inbox, type InboxListener } from './inbox.js';
import { HEARD, UNHEARD } from '../scripts/hand-off.js';
import type { LockKeys } from './lock-keys.js';

/** Receives what a sharded inbox hears. */
export interface ShardedInboxListener extends InboxListener {
  /** Messages about this key arrive from now on. */
  onListening(key: string): void;
  /** The Cluster has no sharded publish/subscribe, or its user not the rights to it. The inbox is of no use. */
  onRefused(): void;
}

export interface ShardedInboxOptions {
  /** A Cluster. */
  client: RedisClient;
  /** The name of its connections in `CLIENT LIST`. */
  clientName: string;
  keys: LockKeys;
  processName: string;
  listener: ShardedInboxListener;
}

/** The channel of this process for the locks of one slot. */
interface Channel {
  isOpen: boolean;
  /** The keys that were to be listened for while it was not open. */
  readonly keys: Set<string>;
  usedAt: number;
  heardAt: number;
}

/** The connection to one master, with the channels of slots that it has. */
interface Shard {
  readonly master: string;
  readonly channels: Map<string, Channel>;
  subscription?: ShardedSubscription;
  isReady: boolean;
  isChecking: boolean;
}

/** A channel that is not used for so long is left, in milliseconds. Whoever waits uses it each second. */
const IDLE_MS = 60_000;
/** A connection to a master is made at most once in this time, in milliseconds. */
const CONNECT_EVERY_MS = 500;
/** Refusals that end by themselves: of a slot that moves, or a server that cannot answer now. */
const TRANSIENT = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|LOADING|BUSY|READONLY|OOM|MISCONF|NOREPLICAS)\b/;

/**
 * Listens for the turns of this process by sharded publish/subscribe (Redis 7.0): for each slot that is waited on it has a
 * channel on the master of that slot. So a message goes to one node of the Cluster instead of all, and the script that sends
 * it can count its listeners.
 *
 * Nothing is repaired here. A channel counts for the master that the client believes to have its slot, and a connection that
 * breaks is forgotten with its channels: whoever still waits asks each second, finds that it does not listen, and has the channel
 * opened anew, wherever the slot is by then.
 */
export class ShardedInbox implements Inbox {
  readonly channel: string;
  readonly #client: RedisClient;
  readonly #clientName: string;
  readonly #keys: LockKeys;
  readonly #listener: ShardedInboxListener;
  /** The connections, by the name of the master. */
  readonly #shards = new Map<string, Shard>();
  /** When a connection to each master was last begun. */
  readonly #connectedAt = new Map<string, number>();
  #sweeping?: NodeJS.Timeout;

  constructor({ client, clientName, keys, processName, listener }: ShardedInboxOptions) {
    this.#client = client;
    this.#clientName = clientName;
    this.#keys = keys;
    this.#listener = listener;
    this.channel = keys.inbox(processName);
  }

  isOpen(key: string): boolean {
    return this.#find(key)?.isOpen ?? false;
  }

  signOf(key: string): typeof HEARD | typeof UNHEARD {
    const channel = this.#find(key);
    if (channel) channel.usedAt = performance.now();
    return channel?.isOpen ? HEARD : UNHEARD;
  }

  open(key: string): void {
    const master = this.#masterOf(key);
    const shard = master === undefined ? undefined : (this.#shards.get(master) ?? this.#connect(master, key));
    if (!shard) return; // the next attempt has it opened
    const name = this.#nameOf(key);
    const usedAt = performance.now();
    let channel = shard.channels.get(name);
    if (!channel) {
      for (const other of this.#shards.values()) other.channels.delete(name); // its slot has moved
      channel = { isOpen: false, keys: new Set(), usedAt, heardAt: 0 };
      shard.channels.set(name, channel);
      if (shard.isReady) void this.#subscribe(shard, name, channel);
    }
    channel.usedAt = usedAt;
    if (!channel.isOpen) channel.keys.add(key);
  }

  check(key?: string): void {
    if (key !== undefined) {
      const shard = this.#shards.get(this.#masterOf(key) ?? '');
      if (shard) void this.#check(shard, this.#nameOf(key));
      return;
    }
    for (const shard of this.#shards.values()) {
      const [name] = shard.channels.keys();
      if (name !== undefined) void this.#check(shard, name);
    }
  }

  close(): void {
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
    for (const shard of this.#shards.values()) shard.subscription?.close();
    this.#shards.clear();
  }

  #connect(master: string, key: string): Shard | undefined {
    const client = this.#clientOf(master);
    const now = performance.now();
    const connectedAt = this.#connectedAt.get(master);
    if (!client || (connectedAt !== undefined && now - connectedAt < CONNECT_EVERY_MS)) return undefined;
    this.#connectedAt.set(master, now);
    const shard: Shard = { master, channels: new Map(), isReady: false, isChecking: false };
    this.#shards.set(master, shard);
    shard.subscription = client.subscribeSharded(this.#clientName, {
      message: (name, text) => {
        const channel = shard.channels.get(name);
        if (channel) channel.heardAt = performance.now();
        if (text !== ECHO) this.#listener.onMessage(text);
      },
      opened: () => {
        shard.isReady = true;
        for (const [name, channel] of shard.channels) void this.#subscribe(shard, name, channel);
      },
      closed: () => this.#drop(shard),
    });
    // A user who may subscribe, but not publish, would be passed over in each queue.
    client.call('spublish', this.#nameOf(key), ECHO).catch((error: unknown) => this.#noteRefusal(error));
    this.#sweeping ??= setInterval(() => this.#sweep(), IDLE_MS / 2).unref();
    return shard;
  }

  /** Never rejects. */
  async #subscribe(shard: Shard, name: string, channel: Channel): Promise<void> {
    try {
      await shard.subscription!.subscribe(name);
    } catch (error) {
      if (shard.channels.get(name) === channel) shard.channels.delete(name);
      this.#noteRefusal(error);
      return;
    }
    channel.isOpen = true;
    if (shard.channels.get(name) !== channel || !this.#has(shard)) return;
    const keys = [...channel.keys];
    channel.keys.clear();
    for (const key of keys) this.#listener.onListening(key);
  }

  /** Publishes a message to this process on one of the channels. Never rejects. */
  async #check(shard: Shard, name: string): Promise<void> {
    const channel = shard.channels.get(name);
    const askedAt = performance.now();
    if (!channel?.isOpen || shard.isChecking || askedAt - channel.heardAt < HEARD_LATELY_MS) return;
    shard.isChecking = true;
    try {
      const publishing =
        this.#clientOf(shard.master)?.call('spublish', name, ECHO) ?? Promise.reject(new Error('gone'));
      const listeners = await inTime(publishing, ECHO_LIMIT_MS, () => {
        throw new Error('no answer');
      });
      if (Number(listeners) > 0 && channel.heardAt < askedAt) await delay(ECHO_LIMIT_MS, undefined, { ref: false });
    } catch (error) {
      // Of another master by now. Everything else is inconclusive.
      if (error instanceof CommandFault && error.message.startsWith('MOVED ')) shard.channels.delete(name);
      return;
    } finally {
      shard.isChecking = false;
    }
    if (shard.channels.get(name) === channel && channel.heardAt < askedAt) this.#drop(shard);
  }

  #noteRefusal(error: unknown): void {
    const isRefused = error instanceof CommandFault && error.kind === 'refused';
    if (isRefused && !TRANSIENT.test(error.message) && this.#shards.size > 0) this.#listener.onRefused();
  }

  /** Forgets a connection that is of no use. All that wait ask again, and have their channels opened where they are now. */
  #drop(shard: Shard): void {
    if (!this.#has(shard)) return;
    this.#shards.delete(shard.master);
    shard.subscription?.close();
    if ([...shard.channels.values()].some(({ isOpen }) => isOpen)) this.#listener.onChange();
  }

  /** Leaves the channels that are not used any more, and the masters where there are none. */
  #sweep(): void {
    const usedSince = performance.now() - IDLE_MS;
    for (const shard of this.#shards.values()) {
      for (const [name, { usedAt }] of shard.channels) {
        if (usedAt >= usedSince) continue;
        shard.channels.delete(name);
        shard.subscription?.unsubscribe(name);
      }
      if (shard.channels.size === 0) this.#drop(shard);
    }
    this.#connectedAt.clear();
    if (this.#shards.size > 0) return;
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  #has(shard: Shard): boolean {
    return this.#shards.get(shard.master) === shard;
  }

  #find(key: string): Channel | undefined {
    const master = this.#masterOf(key);
    return master === undefined ? undefined : this.#shards.get(master)?.channels.get(this.#nameOf(key));
  }

  #masterOf(key: string): string | undefined {
    const [, master] = this.#client.routeOf(this.#keys.lock(key));
    return master === undefined ? undefined : String(master);
  }

  #clientOf(master: string): RedisClient | undefined {
    return this.#client.masters().find(({ name }) => name === master);
  }

  #nameOf(key: string): string {
    return this.#keys.channelOf(key, this.channel);
  }
}
