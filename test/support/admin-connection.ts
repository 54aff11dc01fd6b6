import { Redis } from 'ioredis';

/** The connection by which a test examines a server: opened for the first command, and again once it has ended. */
export class AdminConnection {
  #client: Redis | undefined;

  constructor(private readonly port: number) {}

  /** Rejects if the server is dead, or does not reply for a long time. */
  command(name: string, ...args: (string | number)[]): Promise<unknown> {
    this.#client ??= this.#connect();
    return this.#client.call(name, ...args);
  }

  close(): void {
    this.#client?.disconnect();
    this.#client = undefined;
  }

  #connect(): Redis {
    const client = new Redis(this.port, '127.0.0.1', {
      // Replies as redis-cli shows them, and no handshake commands in `calls`.
      protocol: 2,
      disableClientInfo: true,
      enableReadyCheck: false,
      retryStrategy: () => null,
      commandTimeout: 20_000,
    });
    // The command in flight rejects with the reason.
    client.on('error', () => {});
    client.on('end', () => {
      if (this.#client === client) this.#client = undefined;
    });
    return client;
  }
}
