import type { ChildProcess } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { createConnection, type Connection } from 'mysql2/promise';
import { launchMariaDb } from '../../servers/launch-mariadb.js';
import { killProcess } from './kill-process.js';

/** A real MariaDB on 127.0.0.1, which dies with this process, however it ends. */
export class MariaDbServer {
  #admin?: Connection;

  private constructor(
    private child: ChildProcess,
    readonly port: number,
    private readonly dir: string,
    private readonly settings: Readonly<Record<string, string>>,
  ) {}

  static async start(settings: Readonly<Record<string, string>> = {}): Promise<MariaDbServer> {
    const dir = await mkdtemp(join(tmpdir(), 'mariadb-'));
    try {
      const { process: child, port } = await launchMariaDb({ dir, settings });
      const server = new MariaDbServer(child, port, dir, settings);
      await server.query('CREATE DATABASE IF NOT EXISTS shop', [], '');
      return server;
    } catch (error) {
      await rm(dir, { recursive: true, force: true });
      throw error;
    }
  }

  get url(): string {
    return `mysql://root@127.0.0.1:${this.port}/shop`;
  }

  /** Runs a statement on a connection of its own. */
  async query(text: string, values: unknown[] = [], database = 'shop'): Promise<Record<string, unknown>[]> {
    this.#admin ??= await this.#connect();
    if (database !== '') await this.#admin.query(`USE ${database}`);
    return (await this.#admin.query(text, values))[0] as unknown as Record<string, unknown>[];
  }

  async #connect(): Promise<Connection> {
    const admin = await createConnection({ host: '127.0.0.1', port: this.port, user: 'root' });
    admin.on('error', () => {
      if (this.#admin === admin) this.#admin = undefined;
    });
    return admin;
  }

  /** kill -9, then the same port again, with its data: as after a crash. */
  async restart(): Promise<void> {
    await this.kill();
    const { dir, port, settings } = this;
    ({ process: this.child } = await launchMariaDb({ dir, port, settings }));
  }

  /** SIGSTOP: it answers nothing, and accepts connections that it will serve later. */
  pause(): void {
    this.child.kill('SIGSTOP');
  }

  resume(): void {
    this.child.kill('SIGCONT');
  }

  async kill(): Promise<void> {
    this.#admin?.destroy();
    this.#admin = undefined;
    await killProcess(this.child);
  }

  async stop(): Promise<void> {
    await this.kill();
    await rm(this.dir, { recursive: true, force: true });
  }
}
