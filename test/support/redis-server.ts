import { execFileSync, type ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { provideRedisServer, type RedisBinary } from '../../servers/find-redis-server.js';
import { launchRedisServer } from '../../servers/launch-redis-server.js';
import { AdminConnection } from './admin-connection.js';
import { killProcess } from './kill-process.js';

export interface RedisServerOptions {
  /** Further settings, such as `['--appendonly', 'yes']`; they override the defaults. */
  readonly args?: readonly string[];
  /** Default: any free port. */
  readonly port?: number;
  /** Kept by `stop`. Default: a temporary folder that `stop` removes. */
  readonly dir?: string;
}

/** A real Redis server on 127.0.0.1, which dies with this process, however it ends. */
export class RedisServer {
  #process: ChildProcess;
  readonly #admin: AdminConnection;

  private constructor(
    child: ChildProcess,
    readonly port: number,
    private readonly dir: string,
    private readonly ownsDir: boolean,
    private readonly args: readonly string[],
  ) {
    this.#process = child;
    this.#admin = new AdminConnection(port);
  }

  static async start({ args = [], port, dir }: RedisServerOptions = {}): Promise<RedisServer> {
    const folder = dir ?? (await mkdtemp(join(tmpdir(), 'redis-server-')));
    const ownsDir = dir === undefined;
    const allArgs = [...debugCommand(await provideRedisServer()), ...SYNC_AT_ONCE, ...args];
    try {
      const launched = await launchRedisServer({ dir: folder, port, args: allArgs });
      return new RedisServer(launched.process, launched.port, folder, ownsDir, allArgs);
    } catch (error) {
      if (ownsDir) await rm(folder, { recursive: true, force: true });
      throw error;
    }
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Also after the server has ended. */
  get pid(): number {
    return this.#process.pid!;
  }

  /** Freezes the server: its connections stay open and nothing answers. */
  pause(): void {
    process.kill(this.pid, 'SIGSTOP');
  }

  resume(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  /** kill -9, which also ends a paused server. */
  async kill(): Promise<void> {
    this.#admin.close();
    await killProcess(this.#process);
  }

  /** kill -9, then the same port again, without data unless `args` asked for persistence. */
  async restart(): Promise<void> {
    await this.kill();
    const { process } = await launchRedisServer({ dir: this.dir, port: this.port, args: this.args });
    this.#process = process;
  }

  async stop(): Promise<void> {
    await this.kill();
    if (this.ownsDir) await rm(this.dir, { recursive: true, force: true });
  }

  /** Sends a command on a separate connection. Rejects if the server is dead, or does not reply for a long time. */
  command(name: string, ...args: (string | number)[]): Promise<unknown> {
    return this.#admin.command(name, ...args);
  }

  async keys(pattern = '*'): Promise<string[]> {
    return ((await this.command('KEYS', pattern)) as string[]).sort();
  }

  /**
   * How often each command ran since the start or `resetCalls`, by lower-case name (`evalsha`, `config|get`). It
   * includes commands that a script calls, and the commands of `command`.
   */
  async calls(): Promise<Record<string, number>> {
    const info = (await this.command('INFO', 'commandstats')) as string;
    return Object.fromEntries(
      [...info.matchAll(/^cmdstat_(.+?):calls=(\d+)/gm)].map(([, name, calls]) => [name!, Number(calls)]),
    );
  }

  async resetCalls(): Promise<void> {
    await this.command('CONFIG', 'RESETSTAT');
  }
}

/** By default a primary waits for five seconds before it sends its data, in case more replicas come. */
const SYNC_AT_ONCE = ['--repl-diskless-sync-delay', '0'];

let debugSettings: string[] | undefined;

/** Redis 7 locks DEBUG by default; Redis 6 does not know the setting. */
function debugCommand({ path, env }: RedisBinary): string[] {
  if (!debugSettings) {
    const version = Number(/v=(\d+)/.exec(execFileSync(path, ['--version'], { env, encoding: 'utf8' }))?.[1]);
    debugSettings = version >= 7 ? ['--enable-debug-command', 'yes'] : [];
  }
  return debugSettings;
}
