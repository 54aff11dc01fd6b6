import type { ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import pg from 'pg';
import { launchPostgres } from '../../servers/launch-postgres.js';

/** A real PostgreSQL on 127.0.0.1, which dies with this process however this process ends. */
export class PostgresServer {
  #admin?: pg.Client;

  private constructor(
    private child: ChildProcess,
    readonly port: number,
    private readonly dir: string,
  ) {}

  static async start(settings: Readonly<Record<string, string>> = {}): Promise<PostgresServer> {
    const dir = await mkdtemp(join(tmpdir(), 'postgres-'));
    try {
      const { process: child, port } = await launchPostgres({ dir, settings });
      return new PostgresServer(child, port, dir);
    } catch (error) {
      await rm(dir, { recursive: true, force: true });
      throw error;
    }
  }

  get url(): string {
    return `postgres://postgres@127.0.0.1:${this.port}/postgres`;
  }

  /** Runs a statement on a connection of its own. */
  async query(text: string, values: unknown[] = []): Promise<Record<string, unknown>[]> {
    if (!this.#admin) {
      this.#admin = new pg.Client(this.url);
      this.#admin.on('error', () => (this.#admin = undefined));
      await this.#admin.connect();
    }
    return (await this.#admin.query(text, values)).rows as Record<string, unknown>[];
  }

  /** kill -9 of all its processes, then the same port again, with its data: as after a crash. */
  async restart(): Promise<void> {
    await this.kill();
    ({ process: this.child } = await launchPostgres({ dir: this.dir, port: this.port }));
  }

  /** Ends at once, as in a crash: the server processes die with the first one. */
  async kill(): Promise<void> {
    await this.#admin?.end().catch(() => {});
    this.#admin = undefined;
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exited = once(this.child, 'exit');
    this.child.kill('SIGQUIT'); // immediate shutdown
    await exited;
  }

  async stop(): Promise<void> {
    await this.kill();
    await rm(this.dir, { recursive: true, force: true });
  }
}
