import { outsideOfCalls } from '../../../core/time/event-loop.js';
import type { Cluster, IoredisClient, Redis, RedisOptions } from '../client/source.js';
import {
  SUBSCRIBE_LIMIT_MS,
  type RedisMessages,
  type ShardedListener,
  type ShardedSubscription,
  type Subscription,
  type SubscriptionListener,
} from '../client/redis-client.js';
import { faultOf } from './ioredis.js';

/** Options of a subscriber: a connection of its own, so that the client it is made from is neither changed nor blocked. */
const SUBSCRIBER = {
  lazyConnect: true,
  socketTimeout: SUBSCRIBE_LIMIT_MS, // a subscription that hangs is made anew
  autoResubscribe: false, // the inbox reports when it listens again, so it subscribes itself
} satisfies RedisOptions;

/** Options of a subscriber to sharded messages. */
const SHARD_SUBSCRIBER = {
  ...SUBSCRIBER,
  keyPrefix: '', // it would be put before channels, too: they count as keys
  enableOfflineQueue: false,
  enableAutoPipelining: false,
  enableReadyCheck: false, // it can subscribe while the server loads its data
  reconnectOnError: null,
  retryStrategy: () => null, // whoever still waits has the next one made
} satisfies RedisOptions;

/** Publish/subscribe with a client of ioredis. */
export class IoredisMessages implements RedisMessages {
  /** @param send sends a command, without the key prefix */
  constructor(
    private readonly client: IoredisClient,
    private readonly send: (command: string, ...args: string[]) => Promise<unknown>,
  ) {}

  subscribe(channel: string, connectionName: string, listener: SubscriptionListener): Subscription {
    return outsideOfCalls(() => new IoredisSubscription(this.#subscriber(connectionName), channel, listener));
  }

  #subscriber(connectionName: string): IoredisClient {
    if (!this.client.isCluster) return (this.client as Redis).duplicate({ ...SUBSCRIBER, connectionName });
    const cluster = this.client as Cluster;
    // All of redisOptions: those given here replace the client's in ioredis 5, credentials included.
    const redisOptions = { ...cluster.options.redisOptions, connectionName };
    return cluster.duplicate([], { lazyConnect: true, redisOptions });
  }

  subscribeSharded(connectionName: string, listener: ShardedListener): ShardedSubscription {
    const options = { ...SHARD_SUBSCRIBER, connectionName };
    return outsideOfCalls(() => new IoredisShardedSubscription((this.client as Redis).duplicate(options), listener));
  }

  async publish(channel: string, text: string, how?: 'sharded'): Promise<number> {
    return Number(await this.send(how === 'sharded' ? 'spublish' : 'publish', channel, text));
  }
}

class IoredisSubscription implements Subscription {
  #isClosed = false;
  /** Runs while SUBSCRIBE is not answered. */
  #limit?: NodeJS.Timeout;

  constructor(
    private readonly client: IoredisClient,
    channel: string,
    private readonly listener: SubscriptionListener,
  ) {
    const unlessClosed = (report: () => void) => {
      if (!this.#isClosed) report();
    };
    client
      .on('error', () => {}) // the connection for commands has the same troubles, and reports them
      .on('message', (_channel: string, text: string) => unlessClosed(() => listener.message(text, channel)))
      .on('ready', () => {
        clearTimeout(this.#limit);
        if (!this.#isClosed) this.#limit = setTimeout(() => this.#end(), SUBSCRIBE_LIMIT_MS).unref();
        client.subscribe(channel).then(
          () => {
            clearTimeout(this.#limit);
            unlessClosed(() => listener.opened());
          },
          (error: unknown) => {
            const { kind, message } = faultOf(error, client);
            if (kind !== 'refused') return; // the connection has broken, which is reported
            clearTimeout(this.#limit);
            unlessClosed(() => listener.refused(message));
          },
        );
      })
      .on('close', () => {
        clearTimeout(this.#limit);
        unlessClosed(() => listener.closed());
      })
      .on('end', () => unlessClosed(() => listener.ended()));
    client.connect().catch(() => {}); // reported by the events
  }

  /** The client may not notice that its connection is dead: that of a Cluster sets no time limit for its subscriber. */
  #end(): void {
    this.close();
    this.listener.closed();
    this.listener.ended();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#limit);
    (this.client as Redis).stream?.destroy(); // a half-open connection would wait for an answer to its end
    this.client.disconnect();
  }
}

class IoredisShardedSubscription implements ShardedSubscription {
  #isClosed = false;

  constructor(
    private readonly client: Redis,
    listener: ShardedListener,
  ) {
    const unlessClosed = (report: () => void) => {
      if (!this.#isClosed) report();
    };
    client
      .on('error', () => {}) // as above; and of an unsubscription that the server has sent, for which ioredis 5 finds no command
      .on('smessage', (channel: string, text: string) => unlessClosed(() => listener.message(text, channel)))
      .on('ready', () => unlessClosed(() => listener.opened()))
      .on('end', () => unlessClosed(() => listener.closed()));
    client.connect().catch(() => {}); // reported by the events
  }

  async subscribe(channel: string): Promise<void> {
    try {
      await this.client.ssubscribe(channel);
    } catch (error) {
      throw faultOf(error, this.client);
    }
  }

  unsubscribe(channel: string): void {
    this.client.sunsubscribe(channel).catch(() => {}); // without its connection it is gone anyway
  }

  close(): void {
    this.#isClosed = true;
    this.client.stream?.destroy(); // a half-open connection would wait for an answer to its end
    this.client.disconnect();
  }
}
