import { outsideOfCalls } from '../../../core/time/event-loop.js';
import type { Credentials } from '../../node/problem-of.js';
import {
  SUBSCRIBE_LIMIT_MS,
  type RedisMessages,
  type ShardedListener,
  type ShardedSubscription,
  type Subscription,
  type SubscriptionListener,
} from '../client/redis-client.js';
import { end, faultOf, ONCE, type Client, type ClientOptions } from './node-redis.js';

/** The longest pause before a subscriber connects again, in milliseconds. */
const LONGEST_PAUSE_MS = 1_000;

/** Publish/subscribe with clients of node-redis, each of which has one connection: what it would do after a break takes too long to notice. */
export class NodeRedisMessages implements RedisMessages {
  /**
   * @param another makes a client for the server as it is known by now
   * @param send sends a command to it
   */
  constructor(
    private readonly another: (options: ClientOptions) => Promise<Client>,
    private readonly send: (command: string, ...args: string[]) => Promise<unknown>,
    private readonly credentials: () => Credentials,
  ) {}

  subscribe(channel: string, name: string, listener: SubscriptionListener): Subscription {
    const subscribe = async (client: Client) => {
      await client.subscribe(channel, (text) => listener.message(text, channel));
    };
    return outsideOfCalls(
      () => new Subscriber(() => this.another({ ...ONCE, name }), subscribe, listener, this.credentials),
    );
  }

  subscribeSharded(name: string, listener: ShardedListener): ShardedSubscription {
    return outsideOfCalls(
      () => new ShardedSubscriber(() => this.another({ ...ONCE, name }), listener, this.credentials),
    );
  }

  async publish(channel: string, text: string, how?: 'sharded'): Promise<number> {
    return Number(await this.send(how === 'sharded' ? 'SPUBLISH' : 'PUBLISH', channel, text));
  }
}

/** One connection, until it breaks. */
class Line {
  #isOver = false;
  #hasSocket = false;
  client?: Client;

  /**
   * @param begin what it is for, within `SUBSCRIBE_LIMIT_MS`
   * @param onOpen it has begun
   * @param onOver it broke, or could not begin
   */
  constructor(
    make: () => Promise<Client>,
    begin: (client: Client) => Promise<void>,
    onOpen: () => void,
    private readonly onOver: (error: unknown) => void,
  ) {
    const limit = setTimeout(() => this.#end(new Error('no answer')), SUBSCRIBE_LIMIT_MS).unref();
    make()
      .then(async (client) => {
        if (this.#isOver) return end(client);
        this.client = client;
        client.on('error', (error: unknown) => this.#end(error)).on('end', () => this.#end(new Error('closed')));
        client.on('connect', () => (this.#hasSocket = true));
        await client.connect();
        await begin(client);
        if (!this.#isOver) onOpen();
      })
      .catch((error: unknown) => this.#end(error))
      .finally(() => clearTimeout(limit));
  }

  close(): void {
    this.#isOver = true;
    if (this.client) end(this.client, this.#hasSocket);
  }

  #end(error: unknown): void {
    if (this.#isOver) return;
    this.close();
    this.onOver(error);
  }
}

class Subscriber implements Subscription {
  #isClosed = false;
  #attempts = 0;
  #line!: Line;
  #again?: NodeJS.Timeout;

  constructor(
    private readonly make: () => Promise<Client>,
    private readonly begin: (client: Client) => Promise<void>,
    private readonly listener: SubscriptionListener,
    private readonly credentials: () => Credentials,
  ) {
    this.#open();
  }

  #open(): void {
    this.#line = new Line(
      this.make,
      this.begin,
      () => {
        this.#attempts = 0;
        if (!this.#isClosed) this.listener.opened();
      },
      (error) => this.#over(error),
    );
  }

  #over(error: unknown): void {
    if (this.#isClosed) return;
    const { kind, message } = faultOf(error, this.credentials());
    // Of what the server says while it connects, only this is about the subscription.
    if (kind === 'refused' && /^NOPERM.*(subscribe|channel)/i.test(message)) return this.listener.refused(message);
    this.listener.closed();
    const pauseMs = Math.min(50 * ++this.#attempts, LONGEST_PAUSE_MS);
    this.#again = setTimeout(() => this.#open(), pauseMs).unref();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#again);
    this.#line.close();
  }
}

class ShardedSubscriber implements ShardedSubscription {
  readonly #line: Line;

  constructor(
    make: () => Promise<Client>,
    private readonly listener: ShardedListener,
    private readonly credentials: () => Credentials,
  ) {
    const begin = () => Promise.resolve();
    this.#line = new Line(
      make,
      begin,
      () => listener.opened(),
      () => listener.closed(),
    );
  }

  // Named when a channel is left: otherwise who subscribes to it before the answer would count as subscribed, and hear nothing.
  readonly #hear = (text: string, channel: string): void => this.listener.message(text, channel);

  async subscribe(channel: string): Promise<void> {
    try {
      await this.#line.client!.sSubscribe(channel, this.#hear);
    } catch (error) {
      throw faultOf(error, this.credentials());
    }
  }

  unsubscribe(channel: string): void {
    this.#line.client?.sUnsubscribe(channel, this.#hear).catch(() => {}); // without its connection it is gone anyway
  }

  close(): void {
    this.#line.close();
  }
}
