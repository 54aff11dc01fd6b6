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

/** A channel that is not used for so long is left, in milliseconds. Whoever waits uses it each second. */
const IDLE_MS = 60_000;
/** Refusals that end by themselves: of a slot that moves, or a server that cannot answer now. */
const TRANSIENT = /^(MOVED|ASK|TRYAGAIN|CLUSTERDOWN|MASTERDOWN|LOADING|BUSY|READONLY|OOM|MISCONF|NOREPLICAS)\b/;

/** The channel of this process for the locks of one slot. */
class SlotChannel extends Channel {
  isOpen = false;
  /** The keys that were to be listened for while it was not open. */
  readonly keys = new Set<string>();
  usedAt = 0;
}

/** The connection to one master, with the channels of slots that it has. */
class Shard extends Ear<ShardedSubscription> {
  /** By their slots. */
  readonly channels = new Map<number, SlotChannel>();

  constructor(
    private readonly master: string,
    private readonly inbox: ShardedInbox,
  ) {
    super();
  }

  /** Has messages about a key of this slot arrive. */
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

  /** @param slot of the message that has not come; undefined: of any slot */
  override check(slot?: number): void {
    const channels = slot === undefined ? [...this.channels.values()] : [this.channels.get(slot)];
    const open = channels.find((channel) => channel?.isOpen);
    if (open) this.doubt(open);
  }

  /** Leaves the channels that were not used since then. */
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
    // A user who may subscribe, but not publish, would be passed over in each queue.
    const [first] = this.channels.values();
    if (connection) first?.echo().catch(() => {});
    return connection;
  }

  /** A connection that is closed has no channels. All that wait have theirs opened where they are now. */
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
        // Of another master by now. Everything else that may pass is inconclusive.
        if (error instanceof CommandFault && error.message.startsWith('MOVED ')) this.leave(slot);
        this.inbox.noteRefusal(error);
      }
      throw error;
    }
  }

  /** The master, as long as the client knows it. */
  get #client(): RedisClient | undefined {
    return this.inbox.client.topology.masters().find(({ name }) => name === this.master);
  }
}

/**
 * Listens for the turns of this process by sharded publish/subscribe (Redis 7.0): for each slot that is waited on it has a
 * channel on the master of that slot. So a message goes to one node of the Cluster instead of all, and the script that sends
 * it can count its listeners.
 *
 * A channel counts for the master that the client believes to have its slot, and a connection that breaks is closed with its
 * channels: whoever still waits asks each second, finds that it does not listen, and has the channel opened anew, wherever the slot
 * is by then.
 */
export class ShardedInbox implements Inbox {
  /** The connections, by the name of the master. */
  readonly #shards = new Map<string, Shard>();
  #sweeping?: NodeJS.Timeout;

  /**
   * @param channel what the names of its channels begin with
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
    if (!shard.channels.has(slot)) for (const other of this.#shards.values()) other.leave(slot); // it has moved
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

  /** The Cluster has no sharded publish/subscribe, or its user not the rights to it: then this inbox is of no use. */
  noteRefusal(error: unknown): void {
    if (!(error instanceof CommandFault) || error.kind !== 'refused' || TRANSIENT.test(error.message)) return;
    if (this.#shards.size > 0) this.listener.onRefused('subscribe', error.message); // once: its listener closes it
  }

  #add(master: string): Shard {
    const shard = new Shard(master, this);
    this.#shards.set(master, shard);
    this.#sweeping ??= outsideOfCalls(() => setInterval(() => this.#sweep(), IDLE_MS / 2)).unref();
    return shard;
  }

  /** Leaves the channels that are not used any more, and the masters where there are none. */
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

  /** The slot of a lock, and the master that has it, as far as that is known. */
  #routeOf(key: string): { slot: number; master: string } {
    const [slot, master = ''] = this.client.topology.routeOf(this.keys.lock(key));
    return { slot: Number(slot), master: String(master) };
  }
}
