import { once } from 'node:events';
import { createServer, type Server, type ServerResponse } from 'node:http';
import type { AddressInfo } from 'node:net';
import type { EtcdAnswer } from './etcd-cluster.js';

/** A command of a store, on its way to etcd. */
export interface Command {
  readonly path: string;
  /**
   * Sends it to etcd.
   * @returns the answer of etcd
   */
  run(): Promise<EtcdAnswer>;
}

/**
 * Its answer arrives; it runs, and its answer is lost; it does not run yet, and its connection breaks; it is not
 * answered.
 */
export type Fate = 'answered' | 'lost' | 'kept' | 'hung';

/** Stands between a store and a member of etcd. */
export class EtcdProxy {
  /** The fate of a command. */
  fate: (command: Command) => Fate | Promise<Fate> = () => 'answered';
  readonly commands: Command[] = [];
  readonly #server: Server;

  private constructor(private readonly target: string) {
    this.#server = createServer((request, response) => {
      const gone = new AbortController();
      response.once('close', () => gone.abort());
      const answered = request.toArray().then((chunks) => {
        return this.#meet(request.url!, Buffer.concat(chunks).toString(), response, gone.signal);
      });
      answered.catch(() => response.destroy()); // one of the two sides is gone
    });
  }

  static async start(target: string): Promise<EtcdProxy> {
    const proxy = new EtcdProxy(target);
    proxy.#server.listen(0, '127.0.0.1');
    await once(proxy.#server, 'listening');
    return proxy;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.close();
    this.#server.closeAllConnections();
  }

  async #meet(path: string, body: string, response: ServerResponse, gone: AbortSignal): Promise<void> {
    const send = (signal?: AbortSignal) => fetch(this.target + path, { method: 'POST', body, signal });
    const command = { path, run: async () => (await (await send()).json()) as EtcdAnswer };
    this.commands.push(command);
    const fate = await this.fate(command);
    if (fate === 'hung') return;
    if (fate === 'kept') return void response.destroy();
    const answer = await send(gone);
    if (fate === 'lost') return void response.destroy();
    response.writeHead(answer.status, { 'content-type': 'application/json' });
    // A watch never ends.
    for await (const chunk of answer.body!) response.write(chunk);
    response.end();
  }
}
