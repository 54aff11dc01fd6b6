import { AdminConnection } from '../../support/admin-connection.js';
import type { RedisServerOptions } from '../../support/redis-server.js';
import type { SimulatedServer } from '../redis/simulated-server.js';
import { simulation } from './simulation.js';

/** Stands in for the class of test/support/redis-server.ts, on a simulated server. */
export class RedisServer {
  readonly #admin: AdminConnection;

  private constructor(private readonly server: SimulatedServer) {
    this.#admin = new AdminConnection(server.port);
  }

  static async start({ args = [], port }: RedisServerOptions = {}): Promise<RedisServer> {
    const settings = settingsOf(args);
    const server = simulation().startServer(port, settings.get('appendonly') === 'yes');
    const unknown = [...settings.keys()].filter((name) => !server.data.settings.has(name));
    if (unknown.length > 0) throw new Error(`The simulated Redis has no settings ${unknown.join(', ')}.`);
    server.configure(settings);
    return new RedisServer(server);
  }

  get port(): number {
    return this.server.port;
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  get pid(): number {
    throw new Error('A simulated Redis has no pid.');
  }

  pause(): void {
    this.server.pause();
  }

  resume(): void {
    this.server.resume();
  }

  async kill(): Promise<void> {
    this.#admin.close();
    this.server.kill();
  }

  async restart(): Promise<void> {
    await this.kill();
    this.server.restart();
  }

  async stop(): Promise<void> {
    await this.kill();
  }

  command(name: string, ...args: (string | number)[]): Promise<unknown> {
    return this.#admin.command(name, ...args);
  }

  async keys(pattern = '*'): Promise<string[]> {
    return ((await this.command('KEYS', pattern)) as string[]).sort();
  }

  async calls(): Promise<Record<string, number>> {
    return Object.fromEntries(this.server.calls);
  }

  async resetCalls(): Promise<void> {
    this.server.calls.clear();
  }
}

/** Of arguments such as `--appendonly yes`. */
function settingsOf(args: readonly string[]): Map<string, string> {
  const settings = new Map<string, string>();
  for (let at = 0; at < args.length; at += 2) settings.set(args[at]!.replace(/^--/, ''), args[at + 1] ?? '');
  return settings;
}
