import { spawn, type ChildProcess } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { Cluster, type ClusterOptions, Redis, type RedisOptions } from 'ioredis';
import { afterAll, onTestFinished } from 'vitest';
import { StoppableProcess } from './driven-process.js';
import { letVote } from './let-vote.js';
import { RedisCluster } from './redis-cluster.js';
import { SentinelGroup } from './redis-sentinel.js';
import { RedisServer } from './redis-server.js';
import { ownerOn } from './stored.js';
import { TcpProxy } from './tcp-proxy.js';
import { until } from './until.js';

/** A Redis server for all tests of a file: `const server = await serverOfFile()`. */
export async function serverOfFile(...args: string[]): Promise<RedisServer> {
  const server = await RedisServer.start({ args });
  afterAll(() => server.stop());
  return server;
}

export function serversOfFile(count: number): Promise<RedisServer[]> {
  return Promise.all(Array.from({ length: count }, () => serverOfFile()));
}

/** A Redis server of its own for one test. */
export async function redisServer(...args: string[]): Promise<RedisServer> {
  const server = await RedisServer.start({ args });
  onTestFinished(() => server.stop());
  return server;
}

export async function redisServers(count: number): Promise<RedisServer[]> {
  return letVote(await Promise.all(Array.from({ length: count }, () => redisServer())));
}

export async function redisCluster(): Promise<RedisCluster> {
  const cluster = await RedisCluster.start();
  onTestFinished(() => cluster.stop());
  return cluster;
}

/** A primary, its replicas and their Sentinels. */
export async function sentinelGroup(): Promise<SentinelGroup> {
  const group = await SentinelGroup.start();
  onTestFinished(() => group.stop());
  return group;
}

export async function proxyTo(server: { port: number }): Promise<TcpProxy> {
  const proxy = await TcpProxy.start(server.port);
  onTestFinished(() => proxy.stop());
  return proxy;
}

/** A client as an application makes it, for the naive locks. */
export function clientOf({ port }: { port: number }, options: RedisOptions = {}): Redis {
  const client = new Redis(port, '127.0.0.1', options).on('error', () => {});
  onTestFinished(() => client.disconnect());
  return client;
}

/** A client of a Cluster, which the caller closes. */
export function clientOfCluster({ nodes }: RedisCluster, options: ClusterOptions = {}): Cluster {
  return new Cluster(
    nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    options,
  );
}

/** The holder of the lock of this library on each server, null if there is none. */
export function ownersOf(servers: readonly RedisServer[], key: string): Promise<(string | null)[]> {
  return Promise.all(servers.map((server) => ownerOn(server, key)));
}

export async function freeOn(servers: readonly RedisServer[], key: string): Promise<void> {
  const what = `no server has the lock "${key}"`;
  await until(async () => (await ownersOf(servers, key)).every((owner) => owner === null), { what });
}

/** The part of a process that does not run: nothing, and its timers wait, too. */
export function blockEventLoop(ms: number): void {
  for (const end = performance.now() + ms; performance.now() < end;);
}

/**
 * A process with a naive lock, which can be stopped and killed. Its story is JavaScript: `redis` is its client,
 * `say(word)` reports its progress to the test, and `await told()` waits for `tell`.
 */
export class NaiveProcess extends StoppableProcess {
  readonly #said: unknown[] = [];

  private constructor(child: ChildProcess) {
    super(child);
    child.on('message', (word) => this.#said.push(word));
  }

  static start({ port }: { port: number }, story: string): NaiveProcess {
    const source = `
      import { Redis } from 'ioredis';
      const redis = new Redis(${port}, '127.0.0.1');
      const say = (word) => process.send(word);
      const told = () => new Promise((resolve) => process.once('message', resolve));
      process.once('disconnect', () => process.exit());
      ${story}`;
    const child = spawn(process.execPath, ['--input-type=module', '--eval', source], {
      cwd: fileURLToPath(new URL('../..', import.meta.url)),
      stdio: ['ignore', 'inherit', 'inherit', 'ipc'],
    });
    const running = new NaiveProcess(child);
    onTestFinished(() => running.kill());
    return running;
  }

  async says(word: string): Promise<void> {
    await until(() => this.#said.includes(word), { what: `the process says "${word}"` });
  }

  tell(): void {
    this.child.send('go on');
  }
}
