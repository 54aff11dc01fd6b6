import { cpSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { RedisServer } from '../support/redis-server.js';
import { keysOfLocks } from '../support/stored.js';

/** What a node has when it comes back. */
export type Restart = 'empty' | 'with-data' | 'old';

/** A redis-server of the run, whose data outlives a kill -9 unless it is told to lose it. */
export class ChaosNode {
  readonly #former: RedisServer[] = [];

  private constructor(
    private readonly dir: string,
    private current: RedisServer,
  ) {}

  static async start(folder: string, name: string): Promise<ChaosNode> {
    const dir = join(folder, name);
    return new ChaosNode(dir, await startServer(join(dir, '0')));
  }

  /** The primary. */
  get server(): RedisServer {
    return this.current;
  }

  /** Keeps a copy of what is on disk, for a restart with old data. */
  keepSnapshot(): void {
    rmSync(this.#snapshot, { recursive: true, force: true });
    cpSync(this.#data, this.#snapshot, { recursive: true });
  }

  async restart(how: Restart, downMs: number, pause: (ms: number) => Promise<void>): Promise<void> {
    await this.server.kill();
    if (how !== 'with-data') rmSync(this.#data, { recursive: true, force: true });
    if (how === 'old') cpSync(this.#snapshot, this.#data, { recursive: true });
    await pause(downMs);
    await this.server.restart();
  }

  /**
   * Another server becomes the primary, without data; the one before becomes its replica, and keeps its connections.
   * @param lead has new connections go to that port
   */
  async swap(lead: (port: number) => void): Promise<void> {
    const before = this.server;
    const next = await startServer(join(this.dir, String(this.#former.length + 1)));
    this.#former.push(before);
    this.current = next;
    lead(next.port);
    await before.command('REPLICAOF', '127.0.0.1', next.port).catch(() => {});
  }

  /** @returns whether it has done so: it may be dead */
  async flush(): Promise<boolean> {
    return this.server.command('FLUSHALL').then(
      () => true,
      () => false,
    );
  }

  /** What is there beside what stays: the fencing counters, and what a restart is known by. */
  async leftKeys(): Promise<string[]> {
    return keysOfLocks(this.server);
  }

  async stop(): Promise<void> {
    await Promise.all([this.server, ...this.#former].map((server) => server.stop()));
    if (existsSync(this.dir)) rmSync(this.dir, { recursive: true, force: true });
  }

  get #data(): string {
    return join(this.dir, String(this.#former.length), 'appendonlydir');
  }

  get #snapshot(): string {
    return join(this.dir, 'snapshot');
  }
}

function startServer(dir: string): Promise<RedisServer> {
  mkdirSync(dir, { recursive: true });
  // Written before each reply, which outlives the process. With `always` the node would say that it never loses a write.
  const args = ['--appendonly', 'yes', '--appendfsync', 'no', '--auto-aof-rewrite-percentage', '0'];
  return RedisServer.start({ dir, args });
}
