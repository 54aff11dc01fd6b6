import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { PGlite } from '@electric-sql/pglite';
import { PGLiteSocketServer } from '@electric-sql/pglite-socket';
import { Redis } from 'ioredis';
import { findRedisServer, provideRedisServer } from '../../servers/find-redis-server.js';
import { launchRedisServer } from '../../servers/launch-redis-server.js';

/** The store of the shop's locks. */
export interface Backing {
  readonly kind: 'redis' | 'postgres' | 'memory';
  /** Says where the store is, for the report. */
  readonly description: string;
  readonly instances: number;
  /** The environment variables of an instance. */
  readonly env: Record<string, string>;
  close(): Promise<void>;
}

/** The store that the command line requests. */
export interface Wishes {
  memory: boolean;
  sql: boolean;
}

const INSTANCES = 3;
/** Two connections for each instance, and one more while it starts. */
const CONNECTIONS = 3 * INSTANCES;

/**
 * Opens the store: a table if `sql` is set, else the Redis at `REDIS_URL`, else a Redis that it starts itself, found or unpacked as for
 * the tests. Only if that fails, it uses the memory of a single instance.
 * @throws Error if `REDIS_URL` or `REDIS_SERVER` is set and cannot be used
 */
export async function openBacking({ memory: wantsMemory, sql }: Wishes): Promise<Backing> {
  if (wantsMemory) return memory('as --memory requests');
  if (sql) return startPostgres();
  const url = process.env.REDIS_URL;
  if (url) {
    await checkReachable(url);
    return redis(url, `Redis at ${withoutCredentials(url)}, from REDIS_URL`, (prefix) => deleteCounter(url, prefix));
  }
  if (!findRedisServer()) {
    console.error('No redis-server here yet: unpacking a private copy into .redis/.');
    try {
      await provideRedisServer();
    } catch (error) {
      return memory(`because there is no Redis.\n${(error as Error).message} Or set REDIS_URL to a running Redis`);
    }
  }
  return startRedis();
}

/** Starts a PGlite in this process, with a socket. It has only one session: the statements of all connections take turns in it. */
async function startPostgres(): Promise<Backing> {
  const db = await PGlite.create();
  const server = new PGLiteSocketServer({ db, port: 0, host: '127.0.0.1', maxConnections: CONNECTIONS });
  await server.start();
  const address = server.getServerConn();
  return {
    kind: 'postgres',
    description: `a table of PostgreSQL (PGlite), started for this run on ${address}`,
    instances: INSTANCES,
    env: { LOCKS: 'postgres', DATABASE_URL: `postgres://postgres@${address}/postgres` },
    close: async () => {
      await server.stop();
      await db.close();
    },
  };
}

async function startRedis(): Promise<Backing> {
  const dir = await mkdtemp(join(tmpdir(), 'shop-redis-'));
  const args = ['--appendonly', 'yes']; // without it, the shop would log a warning at its start
  const clean = () => rm(dir, { recursive: true, force: true });
  const { process: server, port } = await launchRedisServer({ dir, args }).catch(async (error: unknown) => {
    await clean();
    throw error;
  });
  return redis(`redis://127.0.0.1:${port}`, `Redis, started for this run on port ${port}`, async () => {
    // A Ctrl-C in the terminal ends the server as well.
    if (server.exitCode === null && server.signalCode === null) {
      const exited = once(server, 'exit');
      server.kill('SIGKILL');
      await exited;
    }
    await clean();
  });
}

function redis(url: string, description: string, close: (prefix: string) => Promise<void>): Backing {
  // Two runs on one Redis must not disturb each other.
  const prefix = `shop-${randomBytes(4).toString('hex')}`;
  const env = { REDIS_URL: url, LOCKS: 'redis', LOCK_PREFIX: prefix };
  return { kind: 'redis', description, instances: INSTANCES, env, close: () => close(prefix) };
}

/** Deletes the fencing counter, all that the locks leave behind. An application needs it later; this prefix is never used again. */
async function deleteCounter(url: string, prefix: string): Promise<void> {
  const client = new Redis(url, { retryStrategy: () => null });
  client.on('error', () => {}); // reported by the command
  await client.del(`${prefix}:fence`).catch(() => {}); // about 60 bytes remain; that must not fail a finished run
  client.disconnect();
}

function memory(why: string): Backing {
  const description = `memory of one process, ${why}`;
  return { kind: 'memory', description, instances: 1, env: { LOCKS: 'memory' }, close: async () => {} };
}

/** Checks it here: one message is better than three instances that fail to start. */
async function checkReachable(url: string): Promise<void> {
  const client = new Redis(url, {
    retryStrategy: () => null,
    maxRetriesPerRequest: 0,
    connectTimeout: 3_000,
    // By default, ioredis keeps the process alive for two seconds after a refused connection.
    disconnectTimeout: 0,
  });
  let problem: Error | undefined;
  client.on('error', (error) => (problem = error));
  try {
    await client.ping();
  } catch (error) {
    const { message } = problem ?? (error as Error);
    throw new Error(`the Redis of REDIS_URL, ${withoutCredentials(url)}, cannot be used (${message}).`);
  } finally {
    client.disconnect();
  }
}

function withoutCredentials(url: string): string {
  return URL.canParse(url) ? new URL(url).host : 'its address';
}
