import { onTestFinished } from 'vitest';
import type { LockBackend } from '../../lib/testing/index.js';
import { tokenText } from '../../lib/stores/redis/node/lock-keys.js';
import { letVote } from './let-vote.js';
import { RedisServer } from './redis-server.js';
import { ownerOn, shardOf } from './stored.js';
import { until } from './until.js';
import { acquireOn, claimOn, freshKey, releaseOn } from './claims.js';

/** The servers of a Redlock, each by itself. */
export class RedlockNodes {
  readonly #paused = new Set<RedisServer>();
  readonly #dead = new Set<RedisServer>();

  private constructor(readonly servers: readonly RedisServer[]) {}

  static async start(count: number, args: readonly string[] = []): Promise<RedlockNodes> {
    const servers = await Promise.all(Array.from({ length: count }, () => RedisServer.start({ args })));
    return new RedlockNodes(await letVote(servers));
  }

  get urls(): string[] {
    return this.servers.map(({ url }) => url);
  }

  /** Their names in errors. */
  names(...nodes: number[]): string[] {
    return nodes.map((node) => `127.0.0.1:${this.servers[node]!.port}`);
  }

  pause(...nodes: number[]): void {
    for (const node of nodes) {
      this.servers[node]!.pause();
      this.#paused.add(this.servers[node]!);
    }
  }

  /** All paused ones. */
  resume(): void {
    for (const server of this.#paused) server.resume();
    this.#paused.clear();
  }

  /** The owner on each node, null if nobody has the lock. */
  owners(key: string): Promise<(string | null)[]> {
    return Promise.all(this.servers.map((server) => ownerOn(server, key)));
  }

  owner(node: number, key: string): Promise<string | null> {
    return ownerOn(this.servers[node]!, key);
  }

  async kill(node: number): Promise<void> {
    await this.servers[node]!.kill();
    this.#dead.add(this.servers[node]!);
  }

  /** All dead ones. */
  async restart(): Promise<void> {
    await Promise.all([...this.#dead].map((server) => server.restart()));
    await letVote([...this.#dead]);
    this.#dead.clear();
  }

  async allFree(key: string): Promise<void> {
    await until(async () => (await this.owners(key)).every((owner) => owner === null), {
      what: 'no node has the lock',
    });
  }

  async allGranted(key: string): Promise<void> {
    await until(async () => (await this.owners(key)).every(Boolean), { what: 'all nodes have granted' });
  }

  /** Waits until every node takes part in the votes. */
  async allVote(backend: LockBackend): Promise<void> {
    await until(
      async () => {
        const claim = claimOn(freshKey());
        const before = await this.fences(claim.key);
        await acquireOn(backend, claim);
        await releaseOn(backend, claim);
        return (await this.fences(claim.key)).every((counter, node) => counter > before[node]!);
      },
      { what: 'all nodes vote' },
    );
  }

  /** Takes a lock on a node for another program: the value has no token. */
  async put(node: number, key: string, owner: string, ttlMs = 60_000): Promise<void> {
    await this.servers[node]!.command('SET', `lock:{${key}}`, owner, 'PX', ttlMs);
  }

  async drop(node: number, key: string): Promise<void> {
    await this.servers[node]!.command('DEL', `lock:{${key}}`);
  }

  /** The fencing counter of a lock on a node, 0 if there is none. Locks of one shard share it. */
  async fence(node: number, key: string): Promise<number> {
    return Number(await this.servers[node]!.command('GET', shardOf(key)));
  }

  fences(key: string): Promise<number[]> {
    return Promise.all(this.servers.map((_, node) => this.fence(node, key)));
  }

  async setFence(node: number, key: string, value: number): Promise<void> {
    await this.servers[node]!.command('SET', shardOf(key), tokenText(value));
  }

  async stop(): Promise<void> {
    await Promise.all(this.servers.map((server) => server.stop()));
  }
}

/** Those of one test. */
export async function redlockNodes(count: number, args: readonly string[] = []): Promise<RedlockNodes> {
  const nodes = await RedlockNodes.start(count, args);
  onTestFinished(() => nodes.stop());
  return nodes;
}
