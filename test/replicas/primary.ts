import { RedisServer } from '../support/redis-server.js';
import { ownerOn } from '../support/stored.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

/** A primary whose replica follows it by way of a proxy, which can keep the stream of changes from it. */
export class Primary {
  private constructor(
    readonly server: RedisServer,
    readonly replica: RedisServer,
    private readonly stream: TcpProxy,
  ) {}

  static async start(): Promise<Primary> {
    const server = await RedisServer.start();
    const stream = await TcpProxy.start(server.port);
    const replica = await RedisServer.start({ args: ['--replicaof', `127.0.0.1 ${stream.port}`] });
    const primary = new Primary(server, replica, stream);
    await primary.acknowledged();
    return primary;
  }

  get url(): string {
    return this.server.url;
  }

  /** The replica hears of nothing that is written from now on, until `letIn`. */
  cutOff(): void {
    this.stream.dropReplies();
  }

  /** The replica may follow again; what it missed it gets then. */
  uncut(): void {
    this.stream.passReplies();
  }

  /** @returns when the replica follows */
  async letIn(): Promise<void> {
    this.uncut();
    await this.acknowledged();
  }

  /** @returns when a client of this server is blocked by WAIT, the id of that client */
  isWaitedFor(): Promise<string> {
    const waiting = async () =>
      /^id=(\d+) .* flags=b .* cmd=wait /m.exec(String(await this.server.command('CLIENT', 'LIST')))?.[1];
    return until(waiting, { what: 'a client waits for replicas' });
  }

  /** How often WAIT was asked for while the work ran. */
  async waits(work: () => Promise<unknown>): Promise<number> {
    await this.server.resetCalls();
    await work();
    return (await this.server.calls()).wait ?? 0;
  }

  /** Who holds the lock by the primary, and by the replica. */
  async owners(key: string): Promise<{ primary: string | null; replica: string | null }> {
    return { primary: await ownerOn(this.server, key), replica: await ownerOn(this.replica, key) };
  }

  async isFree(key: string): Promise<void> {
    await until(async () => (await this.owners(key)).primary === null, { what: `the lock "${key}" is free` });
  }

  async stop(): Promise<void> {
    await Promise.all([this.server.stop(), this.stream.stop(), this.replica.stop()]);
  }

  private async acknowledged(): Promise<void> {
    const acknowledged = async () => {
      await this.server.command('SET', 'follows', 1);
      return (await this.server.command('WAIT', 1, 200)) === 1;
    };
    await until(acknowledged, { what: 'the replica acknowledges changes' });
  }
}
