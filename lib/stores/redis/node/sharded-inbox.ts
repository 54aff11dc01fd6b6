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
import { ECHO, EchoCheck } from '../../node/echo-check.js';
import type { Inbox, InboxListener } from './inbox.js';
import { DEAF, HEARD, type Sign } from '../scripts/hand-off.js';
import type { LockKeys } from './lock-keys.js';

/** The channel of this process for the locks of one slot. */
interface Channel {
  readonly name: string;
  isOpen: boolean;
  /** The keys that were to be listened for while it was not open. */
  readonly keys: Set<string>;
  usedAt: number;
  heardAt: number;
}

/** The connection to one master, with the channels of slots that it has. */
interface Shard {
  readonly master: string;
  /** By their slots. */
  readonly channels: Map<number, Channel>;
  subscription?: ShardedSubscription;
  isReady: boolean;
  readonly echo: EchoCheck;
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
  /** The connections, by the name of the master. */
  readonly #shards = new Map<string, Shard>();
  /** When a connection to each master was last begun. */
  readonly #connectedAt = new Map<string, number>();
  #sweeping?: NodeJS.Timeout;

  /**
   * @param channel what the names of its channels begin with
   * @param client a Cluster
   * @param clientName the name of its connections in `CLIENT LIST`
   */
  constructor(
    readonly channel: string,
    private readonly client: RedisClient,
    private readonly clientName: string,
    private readonly listener: InboxListener,
    private readonly keys: LockKeys,
  ) {}

  isOpen(key: string): boolean {
    return this.#find(key)?.isOpen ?? false;
  }

  signOf(key: string): Sign {
    const channel = this.#find(key);
    if (channel) channel.usedAt = performance.now();
    return channel?.isOpen ? HEARD : DEAF;
  }

  open(key: string): void {
    const { slot, master } = this.#routeOf(key);
    const shard = this.#shards.get(master) ?? this.#connect(master, slot);
    if (!shard) return; // the next attempt has it opened
    const usedAt = performance.now();
    let channel = shard.channels.get(slot);
    if (!channel) {
      for (const other of this.#shards.values()) other.channels.delete(slot); // it has moved
      channel = { name: this.#nameOf(slot), isOpen: false, keys: new Set(), usedAt, heardAt: 0 };
      shard.channels.set(slot, channel);
      if (shard.isReady) void this.#subscribe(shard, slot, channel);
    }
    channel.usedAt = usedAt;
    if (!channel.isOpen) channel.keys.add(key);
  }

  check(key?: string): void {
    if (key !== undefined) {
      const { slot, master } = this.#routeOf(key);
      const shard = this.#shards.get(master);
      if (shard) this.#check(shard, slot);
      return;
    }
    for (const shard of this.#shards.values()) {
      const open = [...shard.channels].find(([, { isOpen }]) => isOpen);
      if (open) this.#check(shard, open[0]);
    }
  }

  close(): void {
    clearInterval(this.#sweeping);
    this.#sweeping = undefined;
    for (const shard of this.#shards.values()) shard.subscription?.close();
    this.#shards.clear();
  }

  #connect(master: string, slot: number): Shard | undefined {
    const client = this.#clientOf(master);
    const now = performance.now();
    const connectedAt = this.#connectedAt.get(master);
    if (!client || (connectedAt !== undefined && now - connectedAt < CONNECT_EVERY_MS)) return undefined;
    this.#connectedAt.set(master, now);
    const shard: Shard = { master, channels: new Map(), isReady: false, echo: new EchoCheck() };
    this.#shards.set(master, shard);
    shard.subscription = client.messages.subscribeSharded(this.clientName, {
      message: (text, name) => {
        const channel = shard.channels.get(clusterSlot(name));
        if (channel) channel.heardAt = performance.now();
        if (text !== ECHO) this.listener.onMessage(text);
      },
      opened: () => {
        shard.isReady = true;
        for (const [each, channel] of shard.channels) void this.#subscribe(shard, each, channel);
      },
      closed: () => this.#drop(shard),
    });
    // A user who may subscribe, but not publish, would be passed over in each queue.
    client.messages.publish(this.#nameOf(slot), ECHO, 'sharded').catch((error: unknown) => this.#noteRefusal(error));
    this.#sweeping ??= outsideOfCalls(() => setInterval(() => this.#sweep(), IDLE_MS / 2)).unref();
    return shard;
  }

  /** Never rejects. */
  async #subscribe(shard: Shard, slot: number, channel: Channel): Promise<void> {
    try {
      await inTime(shard.subscription!.subscribe(channel.name), SUBSCRIBE_LIMIT_MS, () => {
        this.#drop(shard);
        throw new Error('no answer');
      });
    } catch (error) {
      if (shard.channels.get(slot) === channel) shard.channels.delete(slot);
      this.#noteRefusal(error);
      return;
    }
    channel.isOpen = true;
    if (shard.channels.get(slot) !== channel || !this.#has(shard)) return;
    const keys = [...channel.keys];
    channel.keys.clear();
    for (const key of keys) this.listener.onListening(key);
  }

  #check(shard: Shard, slot: number): void {
    const channel = shard.channels.get(slot);
    if (!channel?.isOpen) return;
    const publish = () =>
      this.#clientOf(shard.master)?.messages.publish(channel.name, ECHO, 'sharded') ??
      Promise.reject(new Error('gone'));
    void shard.echo.isDeaf(channel, publish).then(
      (isDeaf) => {
        if (isDeaf && shard.channels.get(slot) === channel) this.#drop(shard);
      },
      (error: unknown) => {
        // Of another master by now. Everything else that may pass is inconclusive.
        if (error instanceof CommandFault && error.message.startsWith('MOVED ')) shard.channels.delete(slot);
        this.#noteRefusal(error);
      },
    );
  }

  /** The Cluster has no sharded publish/subscribe, or its user not the rights to it: then this inbox is of no use. */
  #noteRefusal(error: unknown): void {
    if (!(error instanceof CommandFault) || error.kind !== 'refused' || TRANSIENT.test(error.message)) return;
    if (this.#shards.size > 0) this.listener.onRefused('subscribe', error.message); // once: its listener closes it
  }

  /** Forgets a connection that is of no use. All that wait ask again, and have their channels opened where they are now. */
  #drop(shard: Shard): void {
    if (!this.#has(shard)) return;
    this.#shards.delete(shard.master);
    shard.subscription?.close();
    if ([...shard.channels.values()].some(({ isOpen }) => isOpen)) this.listener.onListening();
  }

  /** Leaves the channels that are not used any more, and the masters where there are none. */
  #sweep(): void {
    const usedSince = performance.now() - IDLE_MS;
    for (const shard of this.#shards.values()) {
      for (const [slot, { name, usedAt }] of shard.channels) {
        if (usedAt >= usedSince) continue;
        shard.channels.delete(slot);
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
    const { slot, master } = this.#routeOf(key);
    return this.#shards.get(master)?.channels.get(slot);
  }

  /** The slot of a lock, and the master that has it, as far as that is known. */
  #routeOf(key: string): { slot: number; master: string } {
    const [slot, master = ''] = this.client.topology.routeOf(this.keys.lock(key));
    return { slot: Number(slot), master: String(master) };
  }

  #clientOf(master: string): RedisClient | undefined {
    return this.client.topology.masters().find(({ name }) => name === master);
  }

  #nameOf(slot: number): string {
    return this.keys.channelOf(slot, this.channel);
  }
}
