import { once } from 'node:events';
import { connect, createServer, type Server, type Socket } from 'node:net';
import { candidatePort } from '../../servers/candidate-port.js';

interface Connection {
  readonly client: Socket;
  readonly node: Socket;
  /** The worker listens on it. */
  isSubscriber: boolean;
  /** The node has closed it, and the worker does not hear of it. */
  isHalfOpen: boolean;
}

/** The connections of one worker to one node, to be cut and slowed down. */
export class Link {
  readonly #sockets = new Set<Socket>();
  readonly #connections = new Set<Connection>();
  #listener!: Server;
  /** How many faults cut it at present. */
  #cuts = 0;
  /** How much later than it came each piece goes on. */
  slowRequestsMs = 0;
  slowRepliesMs = 0;

  private constructor(
    readonly port: number,
    private nodePort: number,
  ) {}

  static async open(nodePort: number): Promise<Link> {
    for (;;) {
      const link = new Link(await candidatePort(), nodePort);
      try {
        await link.#listen();
        return link;
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== 'EADDRINUSE') throw error;
      }
    }
  }

  /** Breaks the connections; new ones break at once, until `mend`. */
  cut(): void {
    this.#cuts++;
    for (const socket of this.#sockets) socket.destroy();
  }

  mend(): void {
    this.#cuts--;
  }

  /** New connections go there. */
  lead(nodePort: number): void {
    this.nodePort = nodePort;
  }

  /** The node closes the connections on which the worker listens; to the worker they stay open and silent. */
  deafen(): void {
    for (const connection of this.#connections) if (connection.isSubscriber) halfClose(connection);
  }

  /** The same of all connections. */
  silence(): void {
    for (const connection of this.#connections) halfClose(connection);
  }

  /** By which the node knows the connections. */
  get nodeSidePorts(): number[] {
    return [...this.#connections].flatMap(({ node }) => node.localPort ?? []);
  }

  close(): void {
    this.#listener.close();
    this.cut();
  }

  async #listen(): Promise<void> {
    this.#listener = createServer((client) => this.#join(client));
    this.#listener.listen(this.port, '127.0.0.1');
    await once(this.#listener, 'listening');
  }

  #join(client: Socket): void {
    if (this.#cuts > 0) {
      client.destroy();
      return;
    }
    const node = connect(this.nodePort, '127.0.0.1');
    const connection: Connection = { client, node, isSubscriber: false, isHalfOpen: false };
    this.#connections.add(connection);
    client.on('data', (bytes) => {
      connection.isSubscriber ||= /\b(subscribe|listen)\b/i.test(bytes.toString('latin1'));
    });
    client.on('close', () => this.#connections.delete(connection));
    this.#carry(client, node, () => this.slowRequestsMs, connection);
    this.#carry(node, client, () => this.slowRepliesMs, connection);
  }

  #carry(from: Socket, to: Socket, delayMs: () => number, connection: Connection): void {
    this.#sockets.add(from);
    from.setNoDelay();
    const queue: { dueAt: number; act: () => void }[] = [];
    let timer: NodeJS.Timeout | undefined;
    // One timer for the first in line: nothing overtakes what came before.
    const advance = () => {
      timer = undefined;
      const now = performance.now();
      while (queue.length > 0 && queue[0]!.dueAt <= now) queue.shift()!.act();
      if (queue.length > 0) timer = setTimeout(advance, queue[0]!.dueAt - now);
    };
    const pass = (act: () => void) => {
      queue.push({ dueAt: performance.now() + delayMs(), act });
      if (!timer) advance();
    };
    from.on('data', (bytes) => pass(() => to.writable && to.write(bytes)));
    // 'close' follows every 'error'.
    from.on('error', () => {});
    from.on('close', () => {
      this.#sockets.delete(from);
      if (!connection.isHalfOpen || from === connection.client) to.destroySoon();
    });
  }
}

function halfClose(connection: Connection): void {
  connection.isHalfOpen = true;
  connection.node.destroy();
}
