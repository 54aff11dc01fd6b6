import { performance } from 'node:perf_hooks';
import { inTime } from '../../../core/time/time-limit.js';
import { ECHO, ECHO_LIMIT_MS, EchoCheck } from '../../node/echo-check.js';
import { CommandFault, type RedisClient, type Subscription } from '../client/redis-client.js';
import { HEARD, UNHEARD, type Sign } from '../scripts/hand-off.js';

/** What an inbox needs the right to. */
export type Listening = 'subscribe' | 'publish';

/** Receives what an inbox hears. */
export interface InboxListener {
  onMessage(text: string): void;
  /** Messages about this key arrive from now on. Without a key: of any key, or not any more; those published meanwhile are lost. */
  onListening(key?: string): void;
  /** The server has refused one of the commands that listening takes, and it had not before. */
  onRefused(command: Listening, refusal: string): void;
}

/** After a refusal it is tried again by the first that waits so many milliseconds later: the right may have been given back. */
const TRY_AGAIN_MS = 5_000;
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

/** The channel on which this process hears, for all its keys, that its turn has come. */
export class PlainInbox implements Inbox {
  #subscription?: Subscription;
  #isOpen = false;
  readonly #echo = new EchoCheck();
  heardAt = 0;
  /** When listening was last refused, unless it was allowed since. */
  #refusedAt?: number;

  /** @param clientName the name of its connection in `CLIENT LIST` */
  constructor(
    readonly channel: string,
    private readonly client: RedisClient,
    private readonly clientName: string,
    private readonly listener: InboxListener,
  ) {}

  isOpen(): boolean {
    return this.#isOpen;
  }

  /** In a Cluster it may listen at another node than the one that counts the listeners. */
  signOf(): Sign {
    return this.#isOpen && !this.client.topology.isCluster ? HEARD : UNHEARD;
  }

  /** Subscribes, and again after each break of the connection. */
  open(): void {
    if (this.#refusedAt !== undefined && performance.now() - this.#refusedAt < TRY_AGAIN_MS) return;
    this.#subscription ??= this.client.messages.subscribe(this.channel, this.clientName, {
      message: (text) => {
        this.heardAt = performance.now();
        if (text !== ECHO) this.listener.onMessage(text);
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
    const subscription = this.#subscription;
    if (!this.#isOpen || !subscription) return;
    void this.#echo
      .isDeaf(this, () => this.#publishEcho())
      .then(
        (isDeaf) => {
          if (isDeaf && this.#isOpen && this.#subscription === subscription) this.#renew();
        },
        (error: unknown) => {
          if (this.#subscription === subscription) this.#noteRefusal(error); // anything else is inconclusive
        },
      );
  }

  close(): void {
    this.#drop();
    this.#isOpen = false;
  }

  /** In a Cluster PUBLISH counts the listeners of one node only. */
  async #publishEcho(): Promise<number> {
    const listeners = await this.client.messages.publish(this.channel, ECHO);
    return this.client.topology.isCluster ? Infinity : listeners;
  }

  /** Messages count as heard again only if they may be published, too. Never rejects. */
  async #tryAgain(subscription: Subscription): Promise<void> {
    this.#refusedAt = performance.now();
    const publishing = this.#publishEcho().catch((error: unknown) => error);
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
    if (isNew) this.listener.onRefused(command, refusal);
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
    this.listener.onListening();
  }
}
