import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { inTime } from '../../../core/time/time-limit.js';
import type { RedisClient, Subscription } from '../client/redis-client.js';
import { HEARD, UNHEARD, type Sign } from '../scripts/hand-off.js';

/** Receives what an inbox hears. */
export interface InboxListener {
  onMessage(text: string): void;
  /** The inbox has begun, or ceased, to listen: messages published while it did not are lost. */
  onChange(): void;
}

export interface InboxOptions {
  client: RedisClient;
  /** The name of its connection in `CLIENT LIST`. */
  clientName: string;
  channel: string;
  listener: InboxListener;
}

/** How long after a message the subscription is trusted, in milliseconds. */
export const HEARD_LATELY_MS = 500;
/** How long a published message may take to arrive, in milliseconds. */
export const ECHO_LIMIT_MS = 1_000;
/** The message that an inbox publishes to itself. No ticket looks like it. */
export const ECHO = '?';

/** Where this process hears that its turn has come. */
export interface Inbox {
  /** The name of its channel in the entries of queues. */
  readonly channel: string;
  /** Whether messages about a key arrive. */
  isOpen(key: string): boolean;
  /** What the process says of its listening with each attempt. */
  signOf(key: string): Sign;
  /** Begins to listen for messages about a key, unless it does already. */
  open(key: string): void;
  /**
   * Checks that messages still arrive, unless one did a moment ago, and subscribes anew if they do not. Call it when an
   * expected message has not come.
   * @param key the key that it was about; undefined when any message may be lost
   */
  check(key?: string): void;
  close(): void;
}

/**
 * The channel on which this process hears, for all its keys, that its turn has come.
 *
 * A subscription can be dead without the client noticing: the server, or a device in between, has dropped the connection, and
 * a subscriber sends nothing that would reveal it. When there is reason for doubt the inbox publishes a message to itself.
 */
export class PlainInbox implements Inbox {
  readonly channel: string;
  readonly #client: RedisClient;
  readonly #clientName: string;
  readonly #listener: InboxListener;
  #subscription?: Subscription;
  #isOpen = false;
  #heardAt = 0;
  #isChecking = false;

  constructor({ client, clientName, channel, listener }: InboxOptions) {
    this.channel = channel;
    this.#client = client;
    this.#clientName = clientName;
    this.#listener = listener;
  }

  isOpen(): boolean {
    return this.#isOpen;
  }

  /** In a Cluster it may listen at another node than the one that counts the listeners. */
  signOf(): Sign {
    return this.#isOpen && !this.#client.isCluster ? HEARD : UNHEARD;
  }

  /** Subscribes, and again after each break of the connection. */
  open(): void {
    this.#subscription ??= this.#client.subscribe(this.channel, this.#clientName, {
      message: (text) => {
        this.#heardAt = performance.now();
        if (text !== ECHO) this.#listener.onMessage(text);
      },
      opened: () => this.#change(true),
      closed: () => this.#change(false),
      ended: () => {
        this.#subscription = undefined; // the next call that has to wait opens it again
      },
    });
  }

  check(): void {
    if (!this.#isOpen || this.#isChecking || performance.now() - this.#heardAt < HEARD_LATELY_MS) return;
    void this.#check(this.#subscription!);
  }

  close(): void {
    this.#drop();
    this.#isOpen = false;
  }

  /** Never rejects. */
  async #check(subscription: Subscription): Promise<void> {
    this.#isChecking = true;
    const askedAt = performance.now();
    try {
      // A client of the user may never settle commands that were open when its connection broke.
      const listeners = await inTime(this.#client.call('publish', this.channel, ECHO), ECHO_LIMIT_MS, () => {
        throw new Error('no answer');
      });
      // In a Cluster PUBLISH counts the listeners of one node only.
      const mayCome = this.#client.isCluster || Number(listeners) > 0;
      if (mayCome && this.#heardAt < askedAt) await delay(ECHO_LIMIT_MS, undefined, { ref: false });
    } catch {
      return; // not connected, or no right to publish: inconclusive
    } finally {
      this.#isChecking = false;
    }
    if (this.#subscription === subscription && this.#isOpen && this.#heardAt < askedAt) this.#renew();
  }

  #renew(): void {
    this.#change(false);
    this.#drop();
    this.open();
  }

  #drop(): void {
    this.#subscription?.close();
    this.#subscription = undefined;
  }

  #change(isOpen: boolean): void {
    if (this.#isOpen === isOpen) return;
    this.#isOpen = isOpen;
    this.#listener.onChange();
  }
}
