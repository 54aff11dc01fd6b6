import { AdminConnection } from '../../support/admin-connection.js';
import type { RedisServerOptions } from '../../support/redis-server.js';
import type { SimulatedServer } from '../redis/simulated-server.js';
import { simulation } from './simulation.js';

/** Settings about other servers, besides the settings that CONFIG knows. */
const OF_ITS_PLACE = ['replicaof', 'replica-priority', 'cluster-enabled'];

/** Replaces the class of test/support/redis-server.ts, on a simulated server. */
export class RedisServer {
  readonly #admin: AdminConnection;

  private constructor(private readonly server: SimulatedServer) {
    this.#admin = new AdminConnection(server.port);
  }

  static async start({ args = [], port }: RedisServerOptions = {}): Promise<RedisServer> {
    const settings = settingsOf(args);
    const number = (text?: string) => (text === undefined ? undefined : Number(text));
    const server = simulation().startServer(port, settings.get('appendonly') === 'yes', {
      replicaOf: number(settings.get('replicaof')?.split(' ')[1]),
      priority: number(settings.get('replica-priority')),
      isInCluster: settings.get('cluster-enabled') === 'yes',
    });
    for (const name of OF_ITS_PLACE) settings.delete(name);
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

/** The settings in the arguments of a server: `--replicaof 127.0.0.1 6379`, in one argument or in several. */
function settingsOf(args: readonly string[]): Map<string, string> {
  const settings = new Map<string, string>();
  let name = '';
  for (const arg of args) {
    if (arg.startsWith('--')) settings.set((name = arg.slice(2)), '');
    else settings.set(name, `${settings.get(name)} ${arg}`.trim());
  }
  return settings;
}
