import { performance } from 'node:perf_hooks';
import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { inTime } from '../../../core/time/time-limit.js';
import { ECHO, ECHO_LIMIT_MS, EchoCheck } from '../../node/echo-check.js';
import type { SqlSource } from '../sql-client.js';
import type { PostgresClient } from './postgres-source.js';

/** A connection to listen is made at most once in this time, in milliseconds. */
const CONNECT_EVERY_MS = 500;
/** How long the server may take to begin to listen, in milliseconds. */
const LISTEN_LIMIT_MS = 2_000;
/** After it was found that no message arrives, it is tried again by the first that waits so many milliseconds later. */
const TRY_AGAIN_MS = 60_000;

/** Receives what an inbox hears. */
export interface PostgresInboxListener {
  onMessage(text: string): void;
  /** Messages arrive from now on, or not any more; those sent meanwhile are lost. */
  onListening(): void;
  /** The server takes LISTEN, and messages do not arrive. */
  onDeaf(): void;
}

/**
 * Listens for the turns of this process, on a connection of its own, made when a call first has to wait. Messages are relied on once one
 * that it sent itself has arrived: a pooler that gives a connection away after each transaction takes LISTEN, and delivers nothing.
 * A connection that breaks is forgotten: whoever still waits asks each second, and has it made anew.
 */
export class PostgresInbox {
  #client?: PostgresClient;
  #isOpen = false;
  #isOpening = false;
  #triedAt = -Infinity;
  #deafAt = -Infinity;
  #isClosed = false;
  readonly #echo = new EchoCheck();
  heardAt = -Infinity;
  #onHeard?: () => void;

  /**
   * @param prepare called with a new connection before it listens. @throws when that must not be used
   * @param notify sends a message on the channel, by another connection. @throws when it was not sent
   */
  constructor(
    private readonly channel: string,
    private readonly source: SqlSource<PostgresClient>,
    private readonly prepare: (client: PostgresClient) => Promise<void>,
    private readonly notify: (text: string) => Promise<void>,
    private readonly listener: PostgresInboxListener,
  ) {}

  get isOpen(): boolean {
    return this.#isOpen;
  }

  /** Begins to listen, unless it does already. */
  open(): void {
    const now = performance.now();
    if (this.#isClosed || this.#client || this.#isOpening) return;
    if (now - this.#triedAt < CONNECT_EVERY_MS || now - this.#deafAt < TRY_AGAIN_MS) return;
    this.#triedAt = now;
    this.#isOpening = true;
    void outsideOfCalls(() => this.#open());
  }

  /** Finds out whether messages still arrive, unless one did a moment ago. Call it when an expected message has not come. */
  check(): void {
    const client = this.#client;
    if (!client || !this.#isOpen) return;
    void this.#echo
      .isDeaf(this, () => this.#sendEcho())
      .then(
        (isDeaf) => {
          if (isDeaf && this.#client === client) this.#end(client);
        },
        () => {}, // it could not be sent: inconclusive
      );
  }

  close(): void {
    this.#isClosed = true;
    if (this.#client) this.#end(this.#client);
  }

  /** Never rejects. */
  async #open(): Promise<void> {
    let client: PostgresClient | undefined;
    try {
      const opening = this.source.connect(() => client && this.#end(client));
      client = await opening;
      await inTime(this.prepare(client), LISTEN_LIMIT_MS, noAnswer);
      const listening = client.listen(this.channel, (text) => {
        this.heardAt = performance.now();
        this.#onHeard?.();
        if (text !== ECHO) this.listener.onMessage(text);
      });
      await inTime(listening, LISTEN_LIMIT_MS, noAnswer);
      if (this.#isClosed) throw new Error('closed');
      this.#client = client;
      const isHeard = (await this.#isHeard()) || (await this.#isHeard());
      if (this.#client !== client) throw new Error('the connection was closed');
      if (isHeard) this.#change(true);
      else this.#foundDeaf(client);
    } catch {
      client?.close(); // tried again by whoever still waits
      if (this.#client === client) this.#client = undefined;
    }
    this.#isOpening = false;
  }

  /** @throws when the message could not be sent */
  async #isHeard(): Promise<boolean> {
    const heard = new Promise<boolean>((resolve) => (this.#onHeard = () => resolve(true)));
    await this.#sendEcho();
    return inTime(heard, ECHO_LIMIT_MS, () => false);
  }

  async #sendEcho(): Promise<number> {
    await inTime(this.notify(ECHO), ECHO_LIMIT_MS, noAnswer);
    return Infinity; // nobody counts who listens
  }

  #foundDeaf(client: PostgresClient): void {
    this.#deafAt = performance.now();
    this.#end(client);
    this.listener.onDeaf();
  }

  #end(client: PostgresClient): void {
    if (this.#client === client) {
      this.#client = undefined;
      this.#change(false);
    }
    client.close();
  }

  #change(isOpen: boolean): void {
    if (this.#isOpen === isOpen) return;
    this.#isOpen = isOpen;
    this.listener.onListening();
  }
}

function noAnswer(): never {
  throw new Error('no answer');
}
