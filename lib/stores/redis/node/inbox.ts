import { Channel, Ear, Refused, type InboxListener } from '../../node/ear.js';
import { CommandFault, type RedisClient, type Subscription } from '../client/redis-client.js';
import { LISTENING, UNVERIFIED, type Sign } from './lock-keys.js';

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
   * Checks that messages still arrive, unless one did a moment ago, and closes what does not hear them. Call it when an
   * expected message has not come.
   * @param key the key that it was about; undefined when any message may be lost
   */
  check(key?: string): void;
  close(): void;
}

/** The channel on which this process hears, for all its keys, that its turn has come. */
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

  /** In a Cluster it may listen at another node than the one that counts the listeners. */
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
