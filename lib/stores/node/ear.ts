import { performance } from 'node:perf_hooks';
import { inTime } from '../../core/time/time-limit.js';

/** How long a channel is trusted after a message, in milliseconds. */
const RECENT_MESSAGE_MS = 500;
/** The time limit for sending a message, and then again for receiving it, in milliseconds. */
const ECHO_LIMIT_MS = 1_000;
/** The message that a process sends to itself. No ticket has this form. */
const ECHO = '?';
/** The minimum time between two attempts to connect, in milliseconds. */
const CONNECT_EVERY_MS = 500;

/** The rights that an inbox needs. */
export type Listening = 'subscribe' | 'publish';

/** Receives the messages of an inbox. */
export interface InboxListener {
  onMessage(text: string): void;
  /**
   * Messages about this key arrive from now on. Without a key, listening has begun or ended for all keys. Messages that were sent
   * meanwhile are lost.
   */
  onListening(key?: string): void;
  /** The server has refused a command that listening needs, or delivers nothing. Called once for each such problem. */
  onRefused(command: Listening, refusal: string): void;
}

/** The server refuses to send messages for this process. */
export class Refused extends Error {
  /** @param report called for the first refusal only */
  constructor(readonly report: () => void) {
    super('refused');
  }
}

/** A channel that this process listens to. */
export class Channel {
  #heardAt = -Infinity;
  #onHeard?: () => void;

  /**
   * @param send publishes a message on the channel. @returns the number of listeners, as the server counts them @throws Refused
   * @param onMessage receives every message except the probes that `isHeard` sends
   */
  constructor(
    private readonly send: (text: string) => Promise<number>,
    private readonly onMessage: (text: string) => void,
  ) {}

  get hasRecentMessage(): boolean {
    return performance.now() - this.#heardAt < RECENT_MESSAGE_MS;
  }

  /** Called for each message on this channel. */
  hear(text: string): void {
    this.#heardAt = performance.now();
    this.#onHeard?.();
    if (text !== ECHO) this.onMessage(text);
  }

  /** The process has left the channel, so it no longer misses messages there. */
  leave(): void {
    this.#heardAt = Infinity;
    this.#onHeard?.();
  }

  /**
   * Sends a message to this process and waits for it. The server, or a device in between, may have dropped the connection, and a
   * subscriber sends nothing that would reveal this. So nothing else shows whether messages still arrive.
   * @throws when the server has not confirmed the message
   */
  async isHeard(): Promise<boolean> {
    const sentAt = performance.now();
    const heard = new Promise<void>((resolve) => (this.#onHeard = resolve));
    const listeners = await this.echo();
    if (listeners > 0) await inTime(heard, ECHO_LIMIT_MS, () => {});
    return this.#heardAt >= sentAt;
  }

  /** Sends that message. @throws like `isHeard` */
  echo(): Promise<number> {
    return inTime(this.send(ECHO), ECHO_LIMIT_MS, () => {
      throw new Error('no answer');
    });
  }
}

/**
 * - `closed`: there is no connection. The next attempt of a call that waits makes one.
 * - `opening`: the process is connecting, or reconnecting after a break.
 * - `open`: messages arrive.
 * - `doubted`: messages may no longer arrive, so this process has sent one to itself. Until that one is lost, the state counts as open.
 */
type State = 'closed' | 'opening' | 'open' | 'doubted';

/** Listens for messages on a separate connection, which it opens when a call first has to wait. */
export abstract class Ear<Connection extends { close(): void } = { close(): void }> {
  #state: State = 'closed';
  /** The number of state changes: an answer to a question from before a change is ignored. */
  #changes = 0;
  #notBefore = -Infinity;
  #wasRefused = false;
  protected connection?: Connection;
  /** The channel of this connection, if it has only one. */
  protected readonly onlyChannel?: Channel;
  /** Whether every connection must prove that messages arrive. After a refusal it always must. */
  protected readonly mustProve: boolean = false;
  /** The pause after a refusal before the next connection, in milliseconds. */
  protected readonly pauseMs: number = 0;

  /** Opens a connection that listens, and calls `opened`, `broken` and `end` until it is closed. @returns undefined if that is impossible now */
  protected abstract listen(): Connection | undefined;

  /** Called when messages begin or cease to arrive. Messages that were sent meanwhile are lost. */
  protected abstract onChange(): void;

  /** Called when the server has accepted the subscription but delivers no messages. */
  protected onNothingDelivered(): void {}

  /** Whether messages arrive, as far as this process knows. */
  isOpen(): boolean {
    return this.#state === 'open' || this.#state === 'doubted';
  }

  /** Begins to listen, unless it listens already. */
  open(): void {
    const now = performance.now();
    if (this.#state !== 'closed' || now < this.#notBefore) return;
    this.#notBefore = now + CONNECT_EVERY_MS;
    this.connection = this.listen();
    if (this.connection) this.#enter('opening');
  }

  /** Checks whether messages still arrive, unless one arrived a moment ago. Call it when an expected message is missing. */
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

  /** Stops listening for good. */
  close(): void {
    this.#notBefore = Infinity;
    this.#state = 'closed'; // so that `onChange` is not called
    this.end();
  }

  /** Called when the server has accepted the subscription. Never rejects. */
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

  /** Called when the connection broke and will reconnect by itself. */
  protected broken(): void {
    this.#enter('opening');
  }

  /** Called when the connection has ended or is useless. All waiting calls then poll, and the first one opens it again. */
  protected end(): void {
    this.connection?.close();
    this.connection = undefined;
    this.#enter('closed');
  }

  /** Called when the server refuses to let it listen. @param report called for the first refusal only */
  protected refuse(report: () => void): void {
    const isNew = !this.#wasRefused;
    this.#wasRefused = true;
    this.#notBefore = performance.now() + this.pauseMs;
    this.end();
    if (isNew) report();
  }

  /** @returns the number of state changes so far */
  #enter(state: State): number {
    const wasOpen = this.isOpen();
    this.#state = state;
    this.#changes++;
    if (this.isOpen() !== wasOpen) this.onChange();
    return this.#changes;
  }
}

/** Tries once more if the first message is lost. @returns undefined if the result is unknown */
function isHeardAfterRetry(channel: Channel): Promise<boolean | Refused | undefined> {
  const again = (isHeard: boolean) => isHeard || channel.isHeard();
  return channel
    .isHeard()
    .then(again)
    .catch((error: unknown) => (error instanceof Refused ? error : undefined));
}
