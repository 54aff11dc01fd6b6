import { performance } from 'node:perf_hooks';
import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { inTime } from '../../../core/time/time-limit.js';
import { clusterSlot } from '../client/cluster-slot.js';
import {
  CommandFault,
  SUBSCRIBE_LIMIT_MS,
  type RedisClient,
  type ShardedSubscription,
} from '../client/redis-client.js';
import { Channel, Ear, type InboxListener } from '../../node/ear.js';
import type { Inbox } from './inbox.js';
import { NOT_LISTENING, LISTENING, type LockKeys, type Sign } from './lock-keys.js';

/** An unused channel is left after this time, in milliseconds. Every waiting call uses its channel once a second. */
const IDLE_MS = 60_000;
/** Temporary refusals: the slot is moving, or the server cannot answer now. */
const TRANSIENT = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|LOADING|BUSY|READONLY|OOM|MISCONF|NOREPLICAS)\b/;

/** The channel of this process for the locks of one slot. */
class SlotChannel extends Channel {
  isOpen = false;
  /** The keys to report once the channel is open. */
  readonly keys = new Set<string>();
  usedAt = 0;
}

/** The connection to one master, with the channels of its slots. */
class Shard extends Ear<ShardedSubscription> {
  /** By slot. */
  readonly channels = new Map<number, SlotChannel>();

  constructor(
    private readonly master: string,
    private readonly inbox: ShardedInbox,
  ) {
    super();
  }

  /** Subscribes to messages about a key of this slot. */
  want(key: string, slot: number): void {
    const channel = this.channels.get(slot) ?? this.#join(slot);
    channel.usedAt = performance.now();
    if (!channel.isOpen) channel.keys.add(key);
    this.open();
  }

  leave(slot: number): void {
    this.channels.get(slot)?.leave();
    this.channels.delete(slot);
  }

  /** @param slot the slot of the missing message; undefined for any slot */
  override check(slot?: number): void {
    const channels = slot === undefined ? [...this.channels.values()] : [this.channels.get(slot)];
    const open = channels.find((channel) => channel?.isOpen);
    if (open) this.doubt(open);
  }

  /** Leaves the channels that have been unused since this time. */
  sweep(usedSince: number): void {
    for (const [slot, { usedAt }] of this.channels) {
      if (usedAt >= usedSince) continue;
      this.leave(slot);
      this.connection?.unsubscribe(this.inbox.nameOf(slot));
    }
  }

  override close(): void {
    super.close();
    this.channels.clear();
  }

  protected listen(): ShardedSubscription | undefined {
    const onMessage = (text: string, name: string) => this.channels.get(clusterSlot(name))?.hear(text);
    const connection = this.#client?.messages.subscribeSharded(this.inbox.clientName, onMessage, (change) => {
      if (change === 'opened') void this.opened();
      else this.end();
    });
    // This detects a user without the right to publish: every queue would skip such a process.
    const [first] = this.channels.values();
    if (connection) first?.echo().catch(() => {});
    return connection;
  }

  /** A closed connection has no channels. Waiting calls open them again on the masters that then have the slots. */
  protected onChange(): void {
    if (this.isOpen()) {
      for (const slot of this.channels.keys()) void this.#subscribe(slot);
      return;
    }
    const wasHeard = [...this.channels.values()].some(({ isOpen }) => isOpen);
    this.channels.clear();
    if (wasHeard) this.inbox.listener.onListening();
  }

  #join(slot: number): SlotChannel {
    const channel = new SlotChannel(
      (text) => this.#publish(slot, text),
      (text) => this.inbox.listener.onMessage(text),
    );
    this.channels.set(slot, channel);
    if (this.isOpen()) void this.#subscribe(slot);
    return channel;
  }

  /** Never rejects. */
  async #subscribe(slot: number): Promise<void> {
    const channel = this.channels.get(slot)!;
    const isCurrent = () => this.channels.get(slot) === channel;
    try {
      await inTime(this.connection!.subscribe(this.inbox.nameOf(slot)), SUBSCRIBE_LIMIT_MS, () => {
        if (isCurrent()) this.end();
        throw new Error('no answer');
      });
    } catch (error) {
      if (isCurrent()) this.leave(slot);
      this.inbox.noteRefusal(error);
      return;
    }
    if (!isCurrent()) return;
    channel.isOpen = true;
    const keys = [...channel.keys];
    channel.keys.clear();
    for (const key of keys) this.inbox.listener.onListening(key);
  }

  async #publish(slot: number, text: string): Promise<number> {
    const messages = this.#client?.messages;
    if (!messages) throw new Error('gone');
    const channel = this.channels.get(slot);
    try {
      return await messages.publish(this.inbox.nameOf(slot), text, 'sharded');
    } catch (error) {
      if (this.channels.get(slot) === channel) {
        // Another master has the slot now. Other temporary refusals prove nothing.
        if (error instanceof CommandFault && error.message.startsWith('MOVED ')) this.leave(slot);
        this.inbox.noteRefusal(error);
      }
      throw error;
    }
  }

  /** The master, while the client knows it. */
  get #client(): RedisClient | undefined {
    return this.inbox.client.topology.masters().find(({ name }) => name === this.master);
  }
}

/**
 * Listens for the turns of this process by sharded publish/subscribe (Redis 7.0). For each slot with waiting calls it has a channel on
 * the master of that slot. So a message goes to one node of the Cluster instead of all, and the script that sends it can count the
 * listeners.
 *
 * The client determines the master of a slot. When a connection breaks, its channels are closed. Waiting calls poll once a second, and
 * notice that they do not listen. Then they open the channel again, on the master that has the slot by then.
 */
export class ShardedInbox implements Inbox {
  /** The connections, by the name of the master. */
  readonly #shards = new Map<string, Shard>();
  #sweeping?: NodeJS.Timeout;

  /**
   * @param channel the beginning of its channel names
   * @param client a Cluster
   * @param clientName the name of its connections in `CLIENT LIST`
   */
  constructor(
    readonly channel: string,
    readonly client: RedisClient,
    readonly clientName: string,
    readonly listener: InboxListener,
    private readonly keys: LockKeys,
  ) {}

  isOpen(key: string): boolean {
    return this.#find(key)?.isOpen ?? false;
  }

  signOf(key: string): Sign {
    const channel = this.#find(key);
    if (channel) channel.usedAt = performance.now();
    return channel?.isOpen ? LISTENING : NOT_LISTENING;
  }

  open(key: string): void {
    const { slot, master } = this.#routeOf(key);
    const shard = this.#shards.get(master) ?? this.#add(master);
    if (!shard.channels.has(slot)) for (const other of this.#shards.values()) other.leave(slot); // the slot has moved
    shard.want(key, slot);
  }

  check(key?: string): void {
    const slot = key === undefined ? undefined : this.#routeOf(key).slot;
    for (const shard of this.#shards.values()) shard.check(slot);
  }

  close(): void {
    for (const shard of this.#shards.values()) shard.close();
    this.#shards.clear();
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
  }

  /** The name of the channel for the locks of a slot. */
  nameOf(slot: number): string {
    return this.keys.channelOf(slot, this.channel);
  }

  /** Reports a refusal: without sharded publish/subscribe, or the rights to it, this inbox is useless. */
  noteRefusal(error: unknown): void {
    if (!(error instanceof CommandFault) || error.kind !== 'refused' || TRANSIENT.test(error.message)) return;
    if (this.#shards.size > 0) this.listener.onRefused('subscribe', error.message); // only once: the listener closes this inbox
  }

  #add(master: string): Shard {
    const shard = new Shard(master, this);
    this.#shards.set(master, shard);
    this.#sweeping ??= outsideOfCalls(() => setInterval(() => this.#sweep(), IDLE_MS / 2)).unref();
    return shard;
  }

  /** Leaves unused channels, and disconnects from masters without channels. */
  #sweep(): void {
    for (const [master, shard] of this.#shards) {
      shard.sweep(performance.now() - IDLE_MS);
      if (shard.channels.size > 0) continue;
      shard.close();
      this.#shards.delete(master);
    }
    if (this.#shards.size === 0) this.close();
  }

  #find(key: string): SlotChannel | undefined {
    const { slot, master } = this.#routeOf(key);
    return this.#shards.get(master)?.channels.get(slot);
  }

  /** Returns the slot of a lock, and its master, '' if that is unknown. */
  #routeOf(key: string): { slot: number; master: string } {
    const [slot, master = ''] = this.client.topology.routeOf(this.keys.lock(key));
    return { slot: Number(slot), master: String(master) };
  }
}
