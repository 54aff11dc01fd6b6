import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import { inTime } from '../../../core/time/time-limit.js';
import { CommandFault, type RedisClient, type Subscription } from '../client/redis-client.js';
import { HEARD, UNHEARD, type Sign } from '../scripts/hand-off.js';

/** What an inbox needs the right to. */
export type Listening = 'subscribe' | 'publish';

/** Receives what an inbox hears. */
export interface InboxListener {
  onMessage(text: string): void;
  /** The inbox has begun, or ceased, to listen: messages published while it did not are lost. */
  onChange(): void;
}

/** Receives what a plain inbox hears. */
export interface PlainInboxListener extends InboxListener {
  /** The server has refused one of the commands that listening takes, and it had not before. */
  onForbidden(command: Listening, refusal: string): void;
}

export interface InboxOptions {
  client: RedisClient;
  /** The name of its connection in `CLIENT LIST`. */
  clientName: string;
  channel: string;
  listener: PlainInboxListener;
}

/** How long after a message the subscription is trusted, in milliseconds. */
export const HEARD_LATELY_MS = 500;
/** How long a published message may take to arrive, in milliseconds. */
export const ECHO_LIMIT_MS = 1_000;
/** After a refusal it is tried again by the first that waits so many milliseconds later: the right may have been given back. */
const TRY_AGAIN_MS = 5_000;
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
  readonly #listener: PlainInboxListener;
  #subscription?: Subscription;
  #isOpen = false;
  #heardAt = 0;
  /** When listening was last refused, unless it was allowed since. */
  #refusedAt?: number;
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
    if (this.#refusedAt !== undefined && performance.now() - this.#refusedAt < TRY_AGAIN_MS) return;
    this.#subscription ??= this.#client.subscribe(this.channel, this.#clientName, {
      message: (text) => {
        this.#heardAt = performance.now();
        if (text !== ECHO) this.#listener.onMessage(text);
      },
      opened: () => {
        if (this.#refusedAt === undefined) this.#change(true);
        else void this.#tryAgain(this.#subscription!);
      },
      closed: () => this.#change(false),
      ended: () => {
        this.#subscription = undefined; // the next call that has to wait opens it again
      },
      refused: (refusal) => this.#forbid('subscribe', refusal),
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
    } catch (error) {
      if (this.#subscription === subscription) this.#noteRefusal(error);
      return; // inconclusive, if it is not connected
    } finally {
      this.#isChecking = false;
    }
    if (this.#subscription === subscription && this.#isOpen && this.#heardAt < askedAt) this.#renew();
  }

  /** Messages count as heard again only if they may be published, too. Never rejects. */
  async #tryAgain(subscription: Subscription): Promise<void> {
    this.#refusedAt = performance.now();
    const publishing = this.#client.call('publish', this.channel, ECHO).catch((error: unknown) => error);
    const refused = await inTime(publishing, ECHO_LIMIT_MS, () => undefined);
    if (this.#subscription !== subscription || this.#noteRefusal(refused)) return;
    this.#refusedAt = undefined;
    this.#change(true);
  }

  /** @returns whether it is one */
  #noteRefusal(error: unknown): boolean {
    const isRefused = error instanceof CommandFault && error.message.startsWith('NOPERM');
    if (isRefused) this.#forbid('publish', error.message);
    return isRefused;
  }

  /** Ceases to listen for a while: processes that believed to hear of their turns would wait for the next check. */
  #forbid(command: Listening, refusal: string): void {
    const isNew = this.#refusedAt === undefined;
    this.#refusedAt = performance.now();
    this.#drop();
    this.#change(false);
    if (isNew) this.#listener.onForbidden(command, refusal);
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
