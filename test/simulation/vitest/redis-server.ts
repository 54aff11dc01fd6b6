import { Redis } from 'ioredis';
import type { RedisServerOptions } from '../../support/redis-server.js';
import type { SimulatedServer } from '../redis/simulated-server.js';
import { simulation } from './simulation.js';

/** The settings that the simulated Redis has. */
const SETTINGS = [
  'appendonly',
  'appendfsync',
  'save',
  'replicaof',
  'replica-priority',
  'cluster-enabled',
  'cluster-node-timeout',
];

/** Stands in for the class of test/support/redis-server.ts, on a simulated server. */
export class RedisServer {
  #admin?: Redis;

  private constructor(private readonly server: SimulatedServer) {}

  static async start({ args = [], port }: RedisServerOptions = {}): Promise<RedisServer> {
    const settings = settingsOf(args);
    const unknown = [...settings.keys()].filter((name) => !SETTINGS.includes(name));
    if (unknown.length > 0) throw new Error(`The simulated Redis has no settings ${unknown.join(', ')}.`);
    const [primary, priority] = [settings.get('replicaof')?.split(' ')[1], settings.get('replica-priority')];
    return new RedisServer(
      simulation().startServer(port, settings.get('appendonly') === 'yes', {
        replicaOf: primary === undefined ? undefined : Number(primary),
        priority: priority === undefined ? undefined : Number(priority),
        clusterTimeoutMs: settings.has('cluster-enabled') ? Number(settings.get('cluster-node-timeout')) : undefined,
      }),
    );
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
    this.#admin?.disconnect();
    this.#admin = undefined;
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
    this.#admin ??= this.#connect();
    return this.#admin.call(name, ...args);
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

  #connect(): Redis {
    const admin = new Redis(this.port, '127.0.0.1', {
      protocol: 2,
      disableClientInfo: true,
      enableReadyCheck: false,
      retryStrategy: () => null,
      commandTimeout: 2_000,
    });
    admin.on('error', () => {});
    admin.on('end', () => {
      if (this.#admin === admin) this.#admin = undefined;
    });
    return admin;
  }
}

/** The settings in the arguments of a server: `--replicaof 127.0.0.1 6379`, in one argument or in several. */
function settingsOf(args: readonly string[]): ReadonlyMap<string, string> {
  const settings = new Map<string, string>();
  let name = '';
  for (const arg of args) {
    if (arg.startsWith('--')) settings.set((name = arg.slice(2)), '');
    else settings.set(name, `${settings.get(name)} ${arg}`.trim());
  }
  return settings;
}
