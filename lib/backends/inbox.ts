import type { Cluster, Redis, RedisOptions } from 'ioredis';
import type { RedisClient } from '../options.js';

/** The same server as another client uses, on a connection of its own: that one is neither changed nor blocked. */
const OWN_CONNECTION = {
  lazyConnect: true,
  socketTimeout: 5_000, // a subscription that hangs is made anew
  autoResubscribe: false, // the inbox tells when it listens again, so it has to know
} satisfies RedisOptions;

/** What an inbox tells. */
export interface InboxDuties {
  onMessage(text: string): void;
  /** It began, or ceased, to listen: what was published in between is lost. */
  onChange(): void;
}

/** The one channel on which a process hears that its turn has come, for all its keys. */
export class Inbox {
  #client?: RedisClient;
  #isOpen = false;

  constructor(
    private readonly source: RedisClient,
    readonly channel: string,
    private readonly duties: InboxDuties,
  ) {}

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Begins to listen, and keeps on doing so over breaks of the connection. */
  open(): void {
    if (this.#client) return;
    const client = duplicate(this.source);
    this.#client = client;
    client
      .on('error', () => {}) // the connection that asks for locks has the same troubles, and reports them
      .on('message', (_channel: string, text: string) => this.duties.onMessage(text))
      .on('ready', () => this.#subscribe(client))
      .on('close', () => this.#change(client, false))
      .on('end', () => {
        if (this.#client === client) this.#client = undefined; // made anew by the next one who has to wait
      });
    client.connect().catch(() => {}); // told by the events
  }

  close(): void {
    const client = this.#client;
    this.#client = undefined;
    this.#isOpen = false;
    client?.disconnect();
  }

  #subscribe(client: RedisClient): void {
    // Refused, for want of rights: then those who wait ask from time to time.
    client.subscribe(this.channel).then(
      () => this.#change(client, true),
      () => {},
    );
  }

  #change(client: RedisClient, isOpen: boolean): void {
    if (this.#client !== client || this.#isOpen === isOpen) return;
    this.#isOpen = isOpen;
    this.duties.onChange();
  }
}

/** A second connection to the server of a client, not opened yet. */
export function ownConnection(client: Redis, options: RedisOptions = {}): Redis {
  return client.duplicate({ ...OWN_CONNECTION, ...options });
}

function duplicate(client: RedisClient): RedisClient {
  if (!client.isCluster) return ownConnection(client as Redis);
  // Without redisOptions: ioredis 5 would take them for all, and forget the credentials.
  return (client as Cluster).duplicate([], { lazyConnect: true });
}
