import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { inTime } from '../../../core/time/time-limit.js';
import { Channel, Ear, type InboxListener } from '../../node/ear.js';
import type { SqlSource } from '../sql-client.js';
import type { PostgresClient } from './postgres-source.js';

/** How long the server may take to begin to listen, in milliseconds. */
const LISTEN_LIMIT_MS = 2_000;
/** After it was found that no message arrives, it is tried again by the first that waits so many milliseconds later. */
const TRY_AGAIN_MS = 60_000;

/**
 * Listens for the turns of this process. Messages are relied on once one that it sent itself has arrived: a pooler that gives a connection
 * away after each transaction takes LISTEN, and delivers nothing.
 */
export class PostgresInbox extends Ear {
  protected override readonly onlyChannel = new Channel(
    async (text) => {
      await this.notify(text);
      return Infinity; // nobody counts who listens
    },
    (text) => this.listener.onMessage(text),
  );
  protected override readonly mustProve = true;
  protected override readonly pauseMs = TRY_AGAIN_MS;

  /**
   * @param prepare called with a new connection before it listens. @throws when that must not be used
   * @param notify sends a message on the channel, by another connection. @throws when it was not sent
   */
  constructor(
    private readonly channel: string,
    private readonly source: SqlSource<PostgresClient>,
    private readonly prepare: (client: PostgresClient) => Promise<void>,
    private readonly notify: (text: string) => Promise<void>,
    private readonly listener: InboxListener,
  ) {
    super();
  }

  protected listen(): { close(): void } {
    let client: PostgresClient | undefined;
    let isClosed = false;
    const end = () => {
      if (!isClosed) this.end();
    };
    const begin = async () => {
      client = await this.source.connect(end);
      if (isClosed) return client.close();
      await inTime(this.prepare(client), LISTEN_LIMIT_MS, noAnswer);
      const listening = client.listen(this.channel, (text) => this.onlyChannel.hear(text));
      await inTime(listening, LISTEN_LIMIT_MS, noAnswer);
      if (!isClosed) void this.opened();
    };
    void outsideOfCalls(() => begin().catch(end));
    return {
      close: () => {
        isClosed = true;
        client?.close();
      },
    };
  }

  protected onChange(): void {
    this.listener.onListening();
  }

  protected override onNothingDelivered(): void {
    this.listener.onRefused('subscribe', 'nothing arrives');
  }
}

function noAnswer(): never {
  throw new Error('no answer');
}
