import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { inTime } from '../../../core/time/time-limit.js';
import type { RedisClient, Subscription } from '../client/redis-client.js';

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

/** After a message the subscription is not doubted for so long, in milliseconds. */
const HEARD_LATELY_MS = 500;
/** A message that was published takes so long at the most, in milliseconds. */
const ECHO_LIMIT_MS = 1_000;
/** A message of the process to itself. It is no ticket. */
const ECHO = '?';

/**
 * The one channel on which a process hears that its turn has come, for all its keys.
 *
 * A subscription can be dead without the client's knowledge: the server, or a device between, has forgotten the connection, and
 * a subscriber sends nothing that would find out. So it is checked when there is reason for doubt, by a message to itself.
 */
export class Inbox {
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

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Begins to listen, and keeps on doing so over breaks of the connection. */
  open(): void {
    this.#subscription ??= this.#client.subscribe(this.channel, this.#clientName, {
      message: (text) => {
        this.#heardAt = performance.now();
        if (text !== ECHO) this.#listener.onMessage(text);
      },
      opened: () => this.#change(true),
      closed: () => this.#change(false),
      ended: () => {
        this.#subscription = undefined; // made anew by the next one who has to wait
      },
    });
  }

  /**
   * Finds out whether messages still arrive, unless one did a moment ago, and subscribes anew if not. Call it when a message
   * that was due has not come.
   */
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
      // A client that was handed in may be one that never settles what was open when its connection broke.
      const listeners = await inTime(this.#client.call('publish', this.channel, ECHO), ECHO_LIMIT_MS, () => {
        throw new Error('no answer');
      });
      // In a Cluster PUBLISH counts the listeners of one node only.
      const mayCome = this.#client.isCluster || Number(listeners) > 0;
      if (mayCome && this.#heardAt < askedAt) await delay(ECHO_LIMIT_MS, undefined, { ref: false });
    } catch {
      return; // not connected, or no right to publish: nothing was found out
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
