import { performance } from 'node:perf_hooks';
import { setTimeout as delay } from 'node:timers/promises';
import type { Cluster, Redis, RedisOptions } from 'ioredis';
import { inTime } from '../../../core/time/time-limit.js';
import type { RedisClient } from '../../../api/options.js';

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
  #client?: RedisClient;
  #isOpen = false;
  #heardAt = 0;
  #isChecking = false;

  constructor(
    private readonly source: RedisClient,
    /** What its connection is called in `CLIENT LIST`. */
    private readonly clientName: string,
    readonly channel: string,
    private readonly duties: InboxDuties,
  ) {}

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Begins to listen, and keeps on doing so over breaks of the connection. */
  open(): void {
    if (this.#client) return;
    const client = duplicate(this.source, this.clientName);
    this.#client = client;
    client
      .on('error', () => {}) // the connection that asks for locks has the same troubles, and reports them
      .on('message', (_channel: string, text: string) => {
        this.#heardAt = performance.now();
        if (text !== ECHO) this.duties.onMessage(text);
      })
      .on('ready', () => this.#subscribe(client))
      .on('close', () => this.#change(client, false))
      .on('end', () => {
        if (this.#client === client) this.#client = undefined; // made anew by the next one who has to wait
      });
    client.connect().catch(() => {}); // told by the events
  }

  /**
   * Finds out whether messages still arrive, unless one did a moment ago, and subscribes anew if not. Call it when a message
   * that was due has not come.
   */
  check(): void {
    if (!this.#isOpen || this.#isChecking || performance.now() - this.#heardAt < HEARD_LATELY_MS) return;
    void this.#check(this.#client!);
  }

  close(): void {
    this.#drop();
    this.#isOpen = false;
  }

  /** Never rejects. */
  async #check(client: RedisClient): Promise<void> {
    this.#isChecking = true;
    const askedAt = performance.now();
    try {
      // A client that was handed in may be one that never settles what was open when its connection broke.
      const listeners = await inTime(this.source.publish(this.channel, ECHO), ECHO_LIMIT_MS, () => {
        throw new Error('no answer');
      });
      // In a Cluster PUBLISH counts the listeners of one node only.
      const mayCome = this.source.isCluster || listeners > 0;
      if (mayCome && this.#heardAt < askedAt) await delay(ECHO_LIMIT_MS, undefined, { ref: false });
    } catch {
      return; // not connected, or no right to publish: nothing was found out
    } finally {
      this.#isChecking = false;
    }
    if (this.#client === client && this.#isOpen && this.#heardAt < askedAt) this.#renew(client);
  }

  #renew(client: RedisClient): void {
    this.#change(client, false);
    this.#drop();
    this.open();
  }

  #drop(): void {
    const client = this.#client;
    this.#client = undefined;
    (client as Redis | undefined)?.stream?.destroy(); // nobody would answer the end of a connection that is half-open
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

function duplicate(client: RedisClient, connectionName: string): RedisClient {
  if (!client.isCluster) return ownConnection(client as Redis, { connectionName });
  // All of redisOptions: ioredis 5 takes what is given here for all, and would forget the credentials.
  const redisOptions = { ...(client as Cluster).options.redisOptions, connectionName };
  return (client as Cluster).duplicate([], { lazyConnect: true, redisOptions });
}
