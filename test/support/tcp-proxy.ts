import { randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { candidatePort } from '../../servers/candidate-port.js';

interface Link {
  readonly client: Socket;
  readonly server: Socket;
  /** The server's bytes no longer reach the client. */
  mute: boolean;
  /** Its client has subscribed to channels. */
  subscribes: boolean;
  /** It does not learn either that the server has closed the connection. */
  hidesClose: boolean;
}

/** The data of a client that subscribes to channels. */
export const SUBSCRIPTION = /\r\ns?subscribe\r\n|LISTEN \w/i;

/** A fault-injecting TCP proxy between a client and a Redis server. */
export class TcpProxy {
  readonly #links = new Set<Link>();
  /** The number of connections that were made to it. */
  made = 0;
  /** The data on connections on which a client has subscribed to channels. */
  heard = '';
  /** How much longer each piece takes, in milliseconds. */
  slowRequestsMs = 0;
  slowRepliesMs = 0;
  /** The number of current faults that break new connections at once. */
  breaking = 0;
  /** A connection is silent once its client has sent something that matches. */
  mutesAfter?: RegExp;
  #listener!: Server;
  #held = false;
  #mute = false;
  #cutRequest: { match: RegExp; happened: () => void } | undefined;

  private constructor(
    readonly port: number,
    private targetPort: number,
  ) {}

  static async start(targetPort: number): Promise<TcpProxy> {
    for (;;) {
      const proxy = new TcpProxy(await candidatePort(), targetPort);
      try {
        await proxy.accept();
        return proxy;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
      }
    }
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** How much longer a request and its reply take together, in milliseconds, as over a long distance. */
  set roundTripMs(ms: number) {
    this.slowRequestsMs = this.slowRepliesMs = ms / 2;
  }

  /** The address by which the server knows the connections. */
  get portsAtServer(): number[] {
    return [...this.#links].flatMap(({ server }) => server.localPort ?? []);
  }

  /** The number of connections. */
  get present(): number {
    return this.#links.size;
  }

  /** Destroys all current connections. */
  cut(): void {
    for (const link of this.#links) destroy(link);
  }

  /** Whether one of the current connections is silent. */
  get hasMuted(): boolean {
    return [...this.#links].some(({ mute }) => mute);
  }

  /** From now on requests reach the server and run, but no reply comes back, not on new connections either. */
  dropReplies(): void {
    this.#mute = true;
    for (const link of this.#links) link.mute = true;
  }

  /** From now on, current connections on which a client has subscribed to channels are silent. */
  muteSubscriptions(): void {
    for (const link of this.#links) link.mute ||= link.subscribes;
  }

  /**
   * Ends `dropReplies`. A connection that lost a reply is cut: its client would take the next reply for the lost one.
   */
  passReplies(): void {
    this.#mute = false;
    for (const link of this.#links) if (link.mute) destroy(link);
  }

  /**
   * When the server closes one of the current connections, its client does not learn of it, as behind a NAT that forgot
   * the connection: for the client it stays open, and silent.
   */
  hideCloses(): void {
    for (const link of this.#links) link.hidesClose = true;
  }

  /** The server closes current connections, and their clients do not learn of it. */
  closeAtServer(which: 'all' | 'subscriptions' = 'all'): void {
    for (const link of this.#links) {
      if (which === 'subscriptions' && !link.subscribes) continue;
      link.hidesClose = true;
      link.server.destroy();
    }
  }

  /**
   * The next request that matches runs on the server, but its reply never comes: the connection is cut instead.
   * A string matches in any letter case. Only the first match is cut, even if the server answered it with an error.
   * @returns when it has happened
   */
  cutAfterRequest(match: string | RegExp): Promise<void> {
    const pattern = typeof match === 'string' ? new RegExp(escapeForRegExp(match), 'i') : match;
    return new Promise((happened) => {
      this.#cutRequest = { match: pattern, happened };
    });
  }

  /** Requests wait in the proxy until `release`. Replies to earlier requests still come through. */
  hold(): void {
    this.#held = true;
    for (const { client } of this.#links) client.pause();
  }

  /**
   * The same on the current connections only; the server does not learn either that a client has closed one of them.
   */
  holdPresent(which: 'all' | 'subscriptions' = 'all'): void {
    for (const { client, subscribes } of this.#links) if (which === 'all' || subscribes) client.pause();
  }

  /** Replies on the current connections wait in the proxy until `release`; requests go on. */
  holdReplies(): void {
    for (const { server } of this.#links) server.pause();
  }

  release(): void {
    this.#held = false;
    for (const { client, server } of this.#links) {
      client.resume();
      server.resume();
    }
  }

  /** New connections get ECONNREFUSED; current ones continue. */
  refuse(): void {
    this.#listener.close();
  }

  /** Ends `refuse`. */
  async accept(): Promise<void> {
    if (this.#listener?.listening) return;
    this.#listener = createServer((client) => this.#link(client));
    this.#listener.listen(this.port, '127.0.0.1');
    await once(this.#listener, 'listening');
  }

  async stop(): Promise<void> {
    this.refuse();
    this.cut();
  }

  /** New connections go to another server, as after a failover. */
  retarget(port: number): void {
    this.targetPort = port;
  }

  #link(client: Socket): void {
    if (this.breaking > 0) {
      client.destroy();
      return;
    }
    const server = connect(this.targetPort, '127.0.0.1');
    const [request, reply] = [inOrder(() => this.slowRequestsMs), inOrder(() => this.slowRepliesMs)];
    const link: Link = { client, server, mute: this.#mute, subscribes: false, hidesClose: false };
    this.#links.add(link);
    this.made++;
    client.setNoDelay();
    server.setNoDelay();
    client.on('data', (bytes) => request(() => this.#forward(link, bytes)));
    server.on('data', (bytes) =>
      reply(() => {
        if (link.mute) return;
        client.write(bytes);
        if (link.subscribes) this.heard += bytes.toString('latin1');
      }),
    );
    for (const [socket, other] of [
      [client, server],
      [server, client],
    ] as const) {
      // 'close' follows every 'error'.
      socket.on('error', () => {});
      socket.on('close', () => {
        if (socket === server && link.hidesClose) return;
        this.#links.delete(link);
        other.destroySoon();
      });
    }
    if (this.#held) client.pause();
  }

  #forward(link: Link, bytes: Buffer): void {
    link.server.write(bytes);
    link.subscribes ||= SUBSCRIPTION.test(bytes.toString('latin1'));
    link.mute ||= this.mutesAfter?.test(bytes.toString('latin1')) ?? false;
    const cut = this.#cutRequest;
    if (!cut?.match.test(bytes.toString('latin1'))) return;
    this.#cutRequest = undefined;
    link.mute = true;
    link.client.pause();
    // Redis answers a connection's requests in order: the answer to our own PING proves that the request before it ran.
    const marker = randomUUID();
    link.server.write(`*2\r\n$4\r\nPING\r\n$${marker.length}\r\n${marker}\r\n`);
    let answers = '';
    link.server.on('data', (reply) => {
      answers += reply.toString('latin1');
      if (!answers.includes(marker)) return;
      destroy(link);
      cut.happened();
    });
  }
}

/** Lets data arrive this much later, and nothing overtake earlier data. */
function inOrder(delayMs: () => number): (arrive: () => void) => void {
  const coming: { dueAt: number; arrive: () => void }[] = [];
  let timer: NodeJS.Timeout | undefined;
  const advance = () => {
    timer = undefined;
    const now = performance.now();
    while (coming.length > 0 && coming[0]!.dueAt <= now) coming.shift()!.arrive();
    if (coming.length > 0) timer = setTimeout(advance, coming[0]!.dueAt - now);
  };
  return (arrive) => {
    coming.push({ dueAt: performance.now() + delayMs(), arrive });
    if (!timer) advance();
  };
}

function destroy({ client, server }: Link): void {
  client.destroy();
  server.destroy();
}

function escapeForRegExp(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, '\\$&');
}
