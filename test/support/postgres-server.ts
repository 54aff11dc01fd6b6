import { execFile, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import pg from 'pg';
import { initialisePostgres, launchPostgres } from '../../servers/launch-postgres.js';
import { killProcess } from './kill-process.js';
import { until } from './until.js';

/** A real PostgreSQL on 127.0.0.1, which dies with this process, however it ends. */
export class PostgresServer {
  #admin?: pg.Client;

  private constructor(
    private child: ChildProcess,
    readonly port: number,
    private readonly dir: string,
    private readonly settings: Readonly<Record<string, string>>,
  ) {}

  static async start(settings: Readonly<Record<string, string>> = {}): Promise<PostgresServer> {
    const { POSTGRES_FILES: files = tmpdir() } = process.env;
    const dir = await mkdtemp(join(files, 'postgres-'));
    try {
      if (files !== tmpdir()) await copyNewServer(join(files, 'new'), dir);
      const { process: child, port } = await launchPostgres({ dir, settings });
      return new PostgresServer(child, port, dir, settings);
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
    return (await (this.#admin ?? (await this.#connect())).query(text, values)).rows as Record<string, unknown>[];
  }

  async #connect(): Promise<pg.Client> {
    const admin = new pg.Client(this.url);
    admin.on('error', () => {
      if (this.#admin === admin) this.#admin = undefined;
    });
    await admin.connect();
    return (this.#admin = admin);
  }

  /** kill -9 of all its processes, then the same port again, with its data: as after a crash. */
  async restart(): Promise<void> {
    await this.kill();
    ({ process: this.child } = await launchPostgres({ dir: this.dir, port: this.port, settings: this.settings }));
  }

  /** SIGSTOP: it answers nothing, and accepts connections that it will serve later. */
  async pause(): Promise<void> {
    // The first process before its children, so that it starts no more of them.
    this.child.kill('SIGSTOP');
    for (const pid of await this.#childPids()) process.kill(pid, 'SIGSTOP');
  }

  async resume(): Promise<void> {
    for (const pid of await this.#childPids()) process.kill(pid, 'SIGCONT');
    this.child.kill('SIGCONT');
  }

  /**
   * Makes it follow a server that never comes, so that it is read-only from its next start on, until `pg_promote()`.
   */
  async becomeReplica(): Promise<void> {
    await this.query(`COPY (SELECT '') TO PROGRAM 'cat > standby.signal'`);
    await this.restart();
  }

  async #childPids(): Promise<number[]> {
    const { pid } = this.child;
    const children = await readFile(`/proc/${pid}/task/${pid}/children`, 'utf8');
    return children.trim().split(' ').filter(Boolean).map(Number);
  }

  /** Ends at once, as in a crash: the server processes die with the first one. */
  async kill(): Promise<void> {
    await this.#admin?.end().catch(() => {});
    this.#admin = undefined;
    await killProcess(this.child, 'SIGQUIT'); // immediate shutdown
  }

  async stop(): Promise<void> {
    await this.kill();
    await rm(this.dir, { recursive: true, force: true });
  }
}

/** Copies the files of a new server, which the first process that needs them makes: that takes ten times as long. */
async function copyNewServer(from: string, to: string): Promise<void> {
  const ready = join(from, 'ready');
  const isFirst = await mkdir(from).then(
    () => true,
    (error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
      return false;
    },
  );
  if (isFirst) await initialisePostgres(from).then(() => writeFile(ready, ''));
  await until(() => existsSync(ready), { what: 'the files of a new server are made', timeoutMs: 200_000 });
  await promisify(execFile)('cp', ['-a', join(from, 'data'), to]);
}
