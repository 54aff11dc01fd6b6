import { performance } from 'node:perf_hooks';
import { inTime } from '../../core/time/time-limit.js';

/** How long after a message a channel is trusted, in milliseconds. */
const RECENT_MESSAGE_MS = 500;
/** How long a message may take to be sent, and then to arrive, in milliseconds. */
const ECHO_LIMIT_MS = 1_000;
/** The message that a process sends to itself. No ticket looks like it. */
const ECHO = '?';
/** A connection is begun at most once in this time, in milliseconds. */
const CONNECT_EVERY_MS = 500;

/** What an inbox needs the right to. */
export type Listening = 'subscribe' | 'publish';

/** Receives what an inbox hears. */
export interface InboxListener {
  onMessage(text: string): void;
  /** Messages about this key arrive from now on. Without a key: of any key, or not any more; those sent meanwhile are lost. */
  onListening(key?: string): void;
  /** The server has refused one of the commands that listening takes, or delivers nothing, and that is new. */
  onRefused(command: Listening, refusal: string): void;
}

/** The server does not let this process send messages. */
export class Refused extends Error {
  /** @param report called unless it was refused before */
  constructor(readonly report: () => void) {
    super('refused');
  }
}

/** A channel that this process listens to. */
export class Channel {
  #heardAt = -Infinity;
  #onHeard?: () => void;

  /**
   * @param send has the server send a message on the channel. @returns how many listen there, by the server's count @throws Refused
   * @param onMessage what arrives, without the messages of `isHeard`
   */
  constructor(
    private readonly send: (text: string) => Promise<number>,
    private readonly onMessage: (text: string) => void,
  ) {}

  get hasRecentMessage(): boolean {
    return performance.now() - this.#heardAt < RECENT_MESSAGE_MS;
  }

  /** A message has arrived on it. */
  hear(text: string): void {
    this.#heardAt = performance.now();
    this.#onHeard?.();
    if (text !== ECHO) this.onMessage(text);
  }

  /** It was left: no message is missed any more. */
  leave(): void {
    this.#heardAt = Infinity;
    this.#onHeard?.();
  }

  /**
   * Sends a message to this process itself, as nothing else shows whether they still arrive: the server, or a device in between, may have
   * dropped the connection, and a subscriber sends nothing that would reveal it.
   * @throws when it is not known to have been sent
   */
  async isHeard(): Promise<boolean> {
    const sentAt = performance.now();
    const heard = new Promise<void>((resolve) => (this.#onHeard = resolve));
    const listeners = await this.echo();
    if (listeners > 0) await inTime(heard, ECHO_LIMIT_MS, () => {});
    return this.#heardAt >= sentAt;
  }

  /** Sends that message. @throws as `isHeard` */
  echo(): Promise<number> {
    return inTime(this.send(ECHO), ECHO_LIMIT_MS, () => {
      throw new Error('no answer');
    });
  }
}

/**
 * - `closed`: there is no connection. The next attempt of a call that waits makes one.
 * - `opening`: the connection is being made, also again after a break.
 * - `open`: messages arrive.
 * - `doubted`: they may not arrive any more, so this process has sent one to itself. Until it is lost, they count as arriving.
 */
type State = 'closed' | 'opening' | 'open' | 'doubted';

/** Listens for messages on a connection of its own, which is made when a call first has to wait. */
export abstract class Ear<Connection extends { close(): void } = { close(): void }> {
  #state: State = 'closed';
  /** How often its state has changed: what was asked before a change says nothing after it. */
  #changes = 0;
  #notBefore = -Infinity;
  #wasRefused = false;
  protected connection?: Connection;
  /** The channel of this connection, if it has only one. */
  protected readonly onlyChannel?: Channel;
  /** Whether each connection has to prove that messages arrive. After a refusal each has to. */
  protected readonly mustProve: boolean = false;
  /** After a refusal no connection is made for so long, in milliseconds. */
  protected readonly pauseMs: number = 0;

  /** Makes a connection that listens, and reports `opened`, `broken` and `end` until it is closed. @returns undefined if it cannot now */
  protected abstract listen(): Connection | undefined;

  /** Messages arrive from now on, or not any more; those sent meanwhile are lost. */
  protected abstract onChange(): void;

  /** The server has accepted the subscription, and messages do not arrive. */
  protected onNothingDelivered(): void {}

  /** Whether messages arrive, as far as is known. */
  isOpen(): boolean {
    return this.#state === 'open' || this.#state === 'doubted';
  }

  /** Begins to listen, unless it does already. */
  open(): void {
    const now = performance.now();
    if (this.#state !== 'closed' || now < this.#notBefore) return;
    this.#notBefore = now + CONNECT_EVERY_MS;
    this.connection = this.listen();
    if (this.connection) this.#enter('opening');
  }

  /** Finds out whether messages still arrive, unless one did a moment ago. Call it when an expected message has not come. */
  check(): void {
    if (this.onlyChannel) this.doubt(this.onlyChannel);
  }

  protected doubt(channel: Channel): void {
    if (this.#state !== 'open' || channel.hasRecentMessage) return;
    const doubted = this.#enter('doubted');
    void channel
      .isHeard()
      .catch((error: unknown) => (error instanceof Refused ? error : true))
      .then((isHeard) => {
        if (this.#changes !== doubted) return;
        if (isHeard instanceof Refused) this.refuse(isHeard.report);
        else if (isHeard) this.#enter('open');
        else this.end();
      });
  }

  /** Ends it for good. */
  close(): void {
    this.#notBefore = Infinity;
    this.#state = 'closed'; // so that nobody is told
    this.end();
  }

  /** The server listens for this process from now on. Never rejects. */
  protected async opened(): Promise<void> {
    if (this.onlyChannel && (this.mustProve || this.#wasRefused)) {
      const opened = this.#changes;
      const isHeard = await isHeardAfterRetry(this.onlyChannel);
      if (this.#changes !== opened) return;
      if (isHeard === undefined) return this.end();
      if (isHeard instanceof Refused) return this.refuse(isHeard.report);
      if (!isHeard) return this.refuse(() => this.onNothingDelivered());
      this.#wasRefused = false;
    }
    this.#enter('open');
  }

  /** The connection broke, and is made again by itself. */
  protected broken(): void {
    this.#enter('opening');
  }

  /** The connection is over, or of no use. All that wait ask again, and have it opened. */
  protected end(): void {
    this.connection?.close();
    this.connection = undefined;
    this.#enter('closed');
  }

  /** The server does not let it listen. @param report called unless it was refused before */
  protected refuse(report: () => void): void {
    const isNew = !this.#wasRefused;
    this.#wasRefused = true;
    this.#notBefore = performance.now() + this.pauseMs;
    this.end();
    if (isNew) report();
  }

  /** @returns the number of this change */
  #enter(state: State): number {
    const wasOpen = this.isOpen();
    this.#state = state;
    this.#changes++;
    if (this.isOpen() !== wasOpen) this.onChange();
    return this.#changes;
  }
}

/** @returns undefined: it is not known */
function isHeardAfterRetry(channel: Channel): Promise<boolean | Refused | undefined> {
  const again = (isHeard: boolean) => isHeard || channel.isHeard();
  return channel
    .isHeard()
    .then(again)
    .catch((error: unknown) => (error instanceof Refused ? error : undefined));
}
