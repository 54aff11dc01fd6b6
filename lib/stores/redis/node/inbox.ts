import { Channel, Ear, Refused, type InboxListener } from '../../node/ear.js';
import { CommandFault, type RedisClient, type Subscription } from '../client/redis-client.js';
import { LISTENING, UNVERIFIED, type Sign } from './lock-keys.js';

/** The pause after a refusal, in milliseconds. The next waiting call then tries again: the user may have got the right meanwhile. */
const TRY_AGAIN_MS = 5_000;

/** Receives the messages about the turns of this process. */
export interface Inbox {
  /** The name of its channel in the entries of queues. */
  readonly channel: string;
  /** Whether messages about a key arrive. */
  isOpen(key: string): boolean;
  /** The sign that the process gives with each attempt. */
  signOf(key: string): Sign;
  /** Begins to listen for messages about a key, unless it listens already. */
  open(key: string): void;
  /**
   * Checks that messages still arrive, unless one arrived a moment ago, and closes connections without messages. Call it when an
   * expected message is missing.
   * @param key the key of that message; undefined when any message may be lost
   */
  check(key?: string): void;
  close(): void;
}

/** The single channel of this process, for all its keys. */
export class PlainInbox extends Ear implements Inbox {
  protected override readonly onlyChannel = new Channel(
    (text) => this.#publish(text),
    (text) => this.listener.onMessage(text),
  );
  protected override readonly pauseMs = TRY_AGAIN_MS;

  /** @param clientName the name of its connection in `CLIENT LIST` */
  constructor(
    readonly channel: string,
    private readonly client: RedisClient,
    private readonly clientName: string,
    private readonly listener: InboxListener,
  ) {
    super();
  }

  /** In a Cluster the process may listen on another node than the one that counts the listeners. */
  signOf(): Sign {
    return this.isOpen() && !this.client.topology.isCluster ? LISTENING : UNVERIFIED;
  }

  protected listen(): Subscription {
    const onMessage = (text: string) => this.onlyChannel.hear(text);
    return this.client.messages.subscribe(this.channel, this.clientName, onMessage, (change) => {
      if (change === 'opened') void this.opened();
      else if (change === 'closed') this.broken();
      else this.refuse(() => this.listener.onRefused('subscribe', change.refusal));
    });
  }

  protected onChange(): void {
    this.listener.onListening();
  }

  /** In a Cluster PUBLISH counts the listeners of one node only. */
  async #publish(text: string): Promise<number> {
    try {
      const listeners = await this.client.messages.publish(this.channel, text);
      return this.client.topology.isCluster ? Infinity : listeners;
    } catch (error) {
      if (!(error instanceof CommandFault && error.message.startsWith('NOPERM'))) throw error;
      const { message } = error;
      throw new Refused(() => this.listener.onRefused('publish', message));
    }
  }
}
