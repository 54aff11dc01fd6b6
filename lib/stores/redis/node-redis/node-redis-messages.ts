import { outsideOfCalls } from '../../../core/time/event-loop.js';
import type { Credentials } from '../../node/problem-of.js';
import type {
  CommandFault,
  RedisMessages,
  ShardedSubscription,
  Subscription,
  SubscriptionChange,
} from '../client/redis-client.js';
import { ListeningConnection, Subscriber, type Report } from '../client/subscriber.js';
import { end, faultOf, CONNECT_ONCE, type Client, type ClientOptions } from './node-redis.js';

/** Publish/subscribe with clients of node-redis, each of which has one connection. */
export class NodeRedisMessages implements RedisMessages {
  /**
   * @param another creates a client for the current server
   * @param send sends a command to the server
   */
  constructor(
    private readonly another: (options: ClientOptions) => Promise<Client>,
    private readonly send: (command: string, ...args: string[]) => Promise<unknown>,
    private readonly credentials: () => Credentials,
  ) {}

  subscribe(
    channel: string,
    name: string,
    onMessage: (text: string) => void,
    onChange: (change: SubscriptionChange) => void,
  ): Subscription {
    const subscribe = (client: Client) => client.subscribe(channel, (text) => onMessage(text));
    const connect = (report: Report) =>
      new Listening(this.another({ ...CONNECT_ONCE, name }), subscribe, this.credentials, report);
    return outsideOfCalls(() => new Subscriber(connect, onChange));
  }

  subscribeSharded(
    name: string,
    onMessage: (text: string, channel: string) => void,
    onChange: (change: 'opened' | 'closed') => void,
  ): ShardedSubscription {
    const report: Report = (fault) => onChange(fault ? 'closed' : 'opened');
    return outsideOfCalls(
      () => new ShardedListening(this.another({ ...CONNECT_ONCE, name }), this.credentials, onMessage, report),
    );
  }

  async publish(channel: string, text: string, how?: 'sharded'): Promise<number> {
    return Number(await this.send(how === 'sharded' ? 'SPUBLISH' : 'PUBLISH', channel, text));
  }
}

class Listening extends ListeningConnection {
  protected client?: Client;
  #hasSocket = false;

  /** @param begin the subscription */
  constructor(
    making: Promise<Client>,
    begin: (client: Client) => Promise<void>,
    private readonly credentials: () => Credentials,
    report: Report,
  ) {
    super(report);
    this.limit();
    making
      .then(async (client) => {
        if (this.isOver) return end(client);
        this.client = client;
        client.on('error', (error: unknown) => this.end(error)).on('end', () => this.end(new Error('closed')));
        client.on('connect', () => (this.#hasSocket = true));
        await client.connect();
        await begin(client);
        this.begun();
      })
      .catch((error: unknown) => this.end(error));
  }

  protected faultOf(error: unknown): CommandFault {
    return faultOf(error, this.credentials());
  }

  protected disconnect(): void {
    if (this.client) end(this.client, this.#hasSocket);
  }
}

class ShardedListening extends Listening implements ShardedSubscription {
  /**
   * @param hear the listener, also for leaving a channel. Without it, a new subscription before the answer would count as subscribed,
   *   but receive nothing
   */
  constructor(
    making: Promise<Client>,
    credentials: () => Credentials,
    private readonly hear: (text: string, channel: string) => void,
    report: Report,
  ) {
    super(making, () => Promise.resolve(), credentials, report);
  }

  async subscribe(channel: string): Promise<void> {
    try {
      await this.client!.sSubscribe(channel, this.hear);
    } catch (error) {
      throw this.faultOf(error);
    }
  }

  unsubscribe(channel: string): void {
    this.client?.sUnsubscribe(channel, this.hear).catch(() => {}); // without its connection the subscription is gone anyway
  }
}
