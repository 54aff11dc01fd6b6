import { spawn, execFileSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Redis } from 'ioredis';
import { killWithParent } from '../../servers/kill-with-parent.js';
import { candidatePort } from '../../servers/candidate-port.js';
import { provideRedisServer, type RedisBinary } from '../../servers/find-redis-server.js';

export interface RedisServerOptions {
  /** Further settings, such as `['--appendonly', 'yes']`; they override the defaults. */
  readonly args?: readonly string[];
  /** Default: any free one. */
  readonly port?: number;
  /** Kept by `stop`. Default: a temporary folder that `stop` removes. */
  readonly dir?: string;
}

/** A real Redis server on 127.0.0.1, which dies with this process however this process ends. */
export class RedisServer {
  #process: ChildProcess | undefined;
  #admin: Redis | undefined;

  private constructor(
    readonly port: number,
    private readonly dir: string,
    private readonly ownsDir: boolean,
    private readonly args: readonly string[],
  ) {}

  static async start({ args = [], port, dir }: RedisServerOptions = {}): Promise<RedisServer> {
    const folder = dir ?? (await mkdtemp(join(tmpdir(), 'redis-server-')));
    for (;;) {
      const server = new RedisServer(port ?? candidatePort(), folder, dir === undefined, args);
      try {
        await server.#launch();
        return server;
      } catch (error) {
        if (port === undefined && String(error).includes('Address already in use')) continue;
        await server.stop();
        throw error;
      }
    }
  }

  get url(): string {
    return `redis://127.0.0.1:${this.port}`;
  }

  /** Also after the server has ended. */
  get pid(): number {
    return this.#process!.pid!;
  }

  /** Freezes the server: its connections stay open and nothing answers. */
  pause(): void {
    process.kill(this.pid, 'SIGSTOP');
  }

  resume(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  /** kill -9, which ends a paused server too. */
  async kill(): Promise<void> {
    this.#admin?.disconnect();
    this.#admin = undefined;
    const running = this.#process;
    if (!running || running.exitCode !== null || running.signalCode !== null) return;
    const exited = once(running, 'exit');
    running.kill('SIGKILL');
    await exited;
  }

  /** kill -9, then the same port again, without data unless `args` asked for persistence. */
  async restart(): Promise<void> {
    await this.kill();
    await this.#launch();
  }

  async stop(): Promise<void> {
    await this.kill();
    if (this.ownsDir) await rm(this.dir, { recursive: true, force: true });
  }

  /** Sends a command on a connection of its own. Rejects if the server is dead, or after 2 s without a reply. */
  command(name: string, ...args: (string | number)[]): Promise<unknown> {
    this.#admin ??= this.#connect();
    return this.#admin.call(name, ...args);
  }

  async keys(pattern = '*'): Promise<string[]> {
    return ((await this.command('KEYS', pattern)) as string[]).sort();
  }

  /**
   * How often each command ran since the start or `resetCalls`, by lower-case name (`evalsha`, `config|get`).
   * Commands that a script calls count too, and so do those of `command`.
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

  #connect(): Redis {
    const admin = new Redis(this.port, '127.0.0.1', {
      // Replies as redis-cli shows them, and no handshake commands in `calls`.
      protocol: 2,
      disableClientInfo: true,
      enableReadyCheck: false,
      retryStrategy: () => null,
      commandTimeout: 2_000,
    });
    // The command in flight rejects with the reason.
    admin.on('error', () => {});
    admin.on('end', () => {
      if (this.#admin === admin) this.#admin = undefined;
    });
    return admin;
  }

  async #launch(): Promise<void> {
    const binary = await provideRedisServer();
    const settings = ['--bind', '127.0.0.1', '--save', '', '--appendonly', 'no', ...debugCommand(binary), ...this.args];
    const child = spawn(binary.path, ['--port', String(this.port), '--dir', this.dir, ...settings], {
      env: binary.env,
      stdio: ['ignore', 'pipe', 'pipe'],
    });
    this.#process = child;
    killWithParent(child);
    await new Promise<void>((ready, failed) => {
      let output = '';
      const read = (text: string): void => {
        output += text;
        if (!output.includes('Ready to accept connections')) return;
        child.stdout.off('data', read).resume();
        ready();
      };
      child.stdout.setEncoding('utf8').on('data', read);
      child.stderr.setEncoding('utf8').on('data', read);
      child.once('error', failed);
      child.once('close', () => failed(new Error(`redis-server ended before it was ready, it printed:\n${output}`)));
    });
  }
}

let debugSettings: string[] | undefined;

/** Redis 7 locks DEBUG unless told otherwise; Redis 6 does not know the setting. */
function debugCommand({ path, env }: RedisBinary): string[] {
  if (!debugSettings) {
    const version = Number(/v=(\d+)/.exec(execFileSync(path, ['--version'], { env, encoding: 'utf8' }))?.[1]);
    debugSettings = version >= 7 ? ['--enable-debug-command', 'yes'] : [];
  }
  return debugSettings;
}
