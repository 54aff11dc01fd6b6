import { outsideOfCalls } from '../../../core/time/event-loop.js';
import type {
  CommandFault,
  RedisMessages,
  ShardedSubscription,
  Subscription,
  SubscriptionChange,
} from '../client/redis-client.js';
import type { Cluster, IoredisClient, Redis, RedisOptions } from '../client/source.js';
import { ListeningConnection, Subscriber, type Report } from '../client/subscriber.js';
import { faultOf } from './ioredis.js';

/** Options of a connection that listens. It is separate, so that the user's client is neither changed nor blocked. */
const LISTENER_OPTIONS = {
  lazyConnect: true,
  keyPrefix: '', // sharded channels count as keys, so they would get the prefix, too
  enableOfflineQueue: false,
  enableAutoPipelining: false,
  enableReadyCheck: false, // it can subscribe while the server loads its data
  reconnectOnError: null,
  retryStrategy: () => null, // `Subscriber` reconnects
} satisfies RedisOptions;

/**
 * The time limit for Sentinels to name the master, in milliseconds. Each connection asks them in the same order, and waits for a dead one
 * as long as its options say, 10 s by default.
 */
const SENTINELS_LIMIT_MS = 30_000;

/** Publish/subscribe with a client of ioredis. */
export class IoredisMessages implements RedisMessages {
  /** @param send sends a command, without the key prefix */
  constructor(
    private readonly client: IoredisClient,
    private readonly send: (command: string, ...args: string[]) => Promise<unknown>,
  ) {}

  subscribe(
    channel: string,
    connectionName: string,
    onMessage: (text: string) => void,
    onChange: (change: SubscriptionChange) => void,
  ): Subscription {
    const connect = (report: Report) => {
      const client = this.#another(connectionName);
      client.on('message', (_channel: string, text: string) => onMessage(text));
      return new Listening(client, () => client.subscribe(channel), report);
    };
    return outsideOfCalls(() => new Subscriber(connect, onChange));
  }

  subscribeSharded(
    connectionName: string,
    onMessage: (text: string, channel: string) => void,
    onChange: (change: 'opened' | 'closed') => void,
  ): ShardedSubscription {
    return outsideOfCalls(() => {
      const client = (this.client as Redis).duplicate({ ...LISTENER_OPTIONS, connectionName });
      client.on('smessage', (channel: string, text: string) => onMessage(text, channel));
      const report: Report = (fault) => onChange(fault ? 'closed' : 'opened');
      return new ShardedListening(client, () => Promise.resolve(), report);
    });
  }

  async publish(channel: string, text: string, how?: 'sharded'): Promise<number> {
    return Number(await this.send(how === 'sharded' ? 'spublish' : 'publish', channel, text));
  }

  #another(connectionName: string): IoredisClient {
    if (!this.client.isCluster) return (this.client as Redis).duplicate({ ...LISTENER_OPTIONS, connectionName });
    const cluster = this.client as Cluster;
    // With all of redisOptions: in ioredis 5 they replace the options of the client, including the credentials.
    const redisOptions = { ...cluster.options.redisOptions, connectionName };
    return cluster.duplicate([], { lazyConnect: true, redisOptions, clusterRetryStrategy: () => null });
  }
}

class Listening<C extends IoredisClient> extends ListeningConnection {
  /** @param begin the subscription */
  constructor(
    protected readonly client: C,
    begin: () => Promise<unknown>,
    report: Report,
  ) {
    super(report);
    this.limit((client as Redis).options.sentinels?.length ? SENTINELS_LIMIT_MS : undefined);
    (client as Redis)
      // The connection for commands reports the same errors. ioredis 5 also fails when the server itself ends a subscription.
      .on('error', () => {})
      .on('ready', () => {
        this.limit();
        begin()
          .then(() => this.begun())
          .catch((error: unknown) => this.end(error));
      })
      .on('end', () => this.end(new Error('closed')));
    client.connect().catch(() => {}); // reported by the events
  }

  protected faultOf(error: unknown): CommandFault {
    return faultOf(error, this.client);
  }

  protected disconnect(): void {
    (this.client as Redis).stream?.destroy(); // a half-open connection would wait for the server to confirm its end
    this.client.disconnect();
  }
}

class ShardedListening extends Listening<Redis> implements ShardedSubscription {
  async subscribe(channel: string): Promise<void> {
    try {
      await this.client.ssubscribe(channel);
    } catch (error) {
      throw this.faultOf(error);
    }
  }

  unsubscribe(channel: string): void {
    this.client.sunsubscribe(channel).catch(() => {}); // without its connection the subscription is gone anyway
  }
}
