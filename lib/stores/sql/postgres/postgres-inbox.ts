import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { inTime } from '../../../core/time/time-limit.js';
import { Channel, Ear, type InboxListener } from '../../node/ear.js';
import type { SqlSource } from '../sql-client.js';
import type { PostgresClient } from './postgres-source.js';

/** The time limit for LISTEN, in milliseconds. */
const LISTEN_LIMIT_MS = 2_000;
/** The pause after a connection delivered no messages, in milliseconds. The next waiting call then tries again. */
const TRY_AGAIN_MS = 60_000;

/**
 * Listens for the turns of this process. It counts as open only after a message to itself has arrived: a pooler that assigns connections
 * per transaction accepts LISTEN, but delivers nothing.
 */
export class PostgresInbox extends Ear {
  protected override readonly onlyChannel = new Channel(
    async (text) => {
      await this.notify(text);
      return Infinity; // PostgreSQL does not count listeners
    },
    (text) => this.listener.onMessage(text),
  );
  protected override readonly mustProve = true;
  protected override readonly pauseMs = TRY_AGAIN_MS;

  /**
   * @param prepare called with a new connection before it listens. @throws when the connection must not be used
   * @param notify sends a message on the channel, over another connection. @throws when it was not sent
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
