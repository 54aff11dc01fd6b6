import { cpSync, existsSync, mkdirSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { COUNTER_WRITES, counterTable } from './counters.js';
import { MariaDbServer } from '../support/mariadb-server.js';
import { PostgresServer } from '../support/postgres-server.js';
import { RedisServer } from '../support/redis-server.js';
import { keysOfLocks } from '../support/stored.js';

/** The data of a node when it comes back. */
export type Restart = 'empty' | 'with-data' | 'old';

/** Each kind of fault is planned for the nodes that can have it. */
export type ChaosNode = ChaosRedis | ChaosDatabase;
export type ChaosDatabase = ChaosPostgres | ChaosMariaDb;

/** A write under a guard. */
interface GuardedWrite {
  key: string;
  turn: string;
  base: number;
}

/** A redis-server of the run, whose data survives a kill -9 unless the call says to lose it. */
export class ChaosRedis {
  readonly #former: RedisServer[] = [];

  private constructor(
    private readonly dir: string,
    private current: RedisServer,
  ) {}

  static async start(folder: string, name: string): Promise<ChaosRedis> {
    const dir = join(folder, name);
    return new ChaosRedis(dir, await startServer(join(dir, '0')));
  }

  get port(): number {
    return this.current.port;
  }

  pause(): void {
    this.current.pause();
  }

  resume(): void {
    this.current.resume();
  }

  async forgetScripts(): Promise<void> {
    await this.current.command('SCRIPT', 'FLUSH').catch(() => {});
  }

  /** Keeps a copy of the data on disk, for a restart with old data. */
  keepSnapshot(): void {
    rmSync(this.#snapshot, { recursive: true, force: true });
    cpSync(this.#data, this.#snapshot, { recursive: true });
  }

  async restart(how: Restart, downMs: number): Promise<void> {
    await this.current.kill();
    if (how !== 'with-data') rmSync(this.#data, { recursive: true, force: true });
    if (how === 'old') cpSync(this.#snapshot, this.#data, { recursive: true });
    await sleep(downMs);
    await this.current.restart();
  }

  /**
   * Another server becomes the primary, without data; the old primary becomes its replica, and keeps its connections.
   * @param lead leads new connections to that port
   */
  async swap(lead: (port: number) => void): Promise<void> {
    const before = this.current;
    const next = await startServer(join(this.dir, String(this.#former.length + 1)));
    this.#former.push(before);
    this.current = next;
    lead(next.port);
    await before.command('REPLICAOF', '127.0.0.1', next.port).catch(() => {});
  }

  /** @returns whether it has done so: it may be dead */
  async flush(): Promise<boolean> {
    return this.current.command('FLUSHALL').then(
      () => true,
      () => false,
    );
  }

  /** The remaining keys besides the permanent ones: the fencing counters, and the records of restarts. */
  async leftKeys(): Promise<string[]> {
    return keysOfLocks(this.current);
  }

  async stop(): Promise<void> {
    await Promise.all([this.current, ...this.#former].map((server) => server.stop()));
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
  // Written before each reply, so it survives the process. With `always`, the node would claim that it never loses a
  // write.
  const args = ['--appendonly', 'yes', '--appendfsync', 'no', '--auto-aof-rewrite-percentage', '0'];
  return RedisServer.start({ dir, args });
}

/** A database of the run, whose data survives its crashes. */
abstract class Database<Server extends PostgresServer | MariaDbServer> {
  protected constructor(protected readonly server: Server) {}

  get port(): number {
    return this.server.port;
  }

  /** Ends the sessions of locks that have these ports at the other side, if the database is up. */
  abstract terminate(ports: readonly number[]): Promise<void>;

  /** Refuses writes for this time. */
  abstract onlyRead(forMs: number): Promise<void>;

  /** The held locks, except the lock of the janitor, which it never releases. */
  abstract leftKeys(): Promise<string[]>;

  pause(): void | Promise<void> {
    return this.server.pause();
  }

  resume(): void | Promise<void> {
    return this.server.resume();
  }

  async restart(_: 'with-data', downMs: number): Promise<void> {
    await this.server.kill();
    await sleep(downMs);
    await this.server.restart();
  }

  /** The writes under a guard, in the order of each counter. */
  async guardedWrites(): Promise<GuardedWrite[]> {
    const rows: Record<string, unknown>[] = await this.server.query(COUNTER_WRITES);
    return rows.map(({ name, turn, base }) => ({ key: String(name), turn: String(turn), base: Number(base) }));
  }

  async stop(): Promise<void> {
    await this.server.stop();
  }
}

export class ChaosPostgres extends Database<PostgresServer> {
  static async start(): Promise<ChaosPostgres> {
    const server = await PostgresServer.start();
    await server.query(counterTable('bigserial'));
    return new ChaosPostgres(server);
  }

  /** Crashes, comes back as a replica without a primary, and is promoted later. */
  async onlyRead(forMs: number): Promise<void> {
    await this.server.becomeReplica();
    await sleep(forMs);
    await this.server.query('SELECT pg_promote()');
  }

  async terminate(ports: readonly number[]): Promise<void> {
    const sessions = `application_name = 'nest-redis-lock' AND client_port = ANY($1)`;
    await this.server
      .query(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE ${sessions}`, [ports])
      .catch(() => {});
  }

  async leftKeys(): Promise<string[]> {
    const rows = await this.server.query(
      `SELECT resource_lock_key AS key FROM resource_lock WHERE expires_at > clock_timestamp() AND resource_lock_key <> '}janitor'`,
    );
    return rows.map(({ key }) => String(key));
  }
}

export class ChaosMariaDb extends Database<MariaDbServer> {
  static async start(): Promise<ChaosMariaDb> {
    // Written at each commit, so it survives the process.
    const server = await MariaDbServer.start({ 'innodb-flush-log-at-trx-commit': '2' });
    await server.query(counterTable('bigint AUTO_INCREMENT'));
    // A superuser can also write to a read-only server.
    await server.query('CREATE USER app');
    await server.query('GRANT CREATE, SELECT, INSERT, UPDATE, DELETE ON shop.* TO app');
    return new ChaosMariaDb(server);
  }

  async onlyRead(forMs: number): Promise<void> {
    await this.server.query('SET GLOBAL read_only = 1');
    await sleep(forMs);
    await this.server.query('SET GLOBAL read_only = 0');
  }

  async terminate(ports: readonly number[]): Promise<void> {
    const hosts = ports.map((port) => `127.0.0.1:${port}`);
    const sessions = 'SELECT id FROM information_schema.processlist WHERE host IN (?)';
    for (const { id } of await this.server.query(sessions, [hosts]).catch(() => []))
      await this.server.query(`KILL ${Number(id)}`).catch(() => {});
  }

  async leftKeys(): Promise<string[]> {
    const rows = await this.server.query(
      `SELECT CAST(resource_lock_key AS char) AS name FROM resource_lock WHERE expires_at > UTC_TIMESTAMP(6) AND resource_lock_key <> '}janitor'`,
    );
    return rows.map(({ name }) => String(name));
  }
}
