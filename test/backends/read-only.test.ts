import { Cluster, Redis } from 'ioredis';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { proxyTo, redisServer, redisServers } from '../support/stage.js';
import { letVote } from '../support/let-vote.js';
import { RedisCluster } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { acquireOn, claimOn, connected, freshKey, granted, releaseOn } from '../support/claims.js';

/** A server, and the address at which clients know it, which can lead to another one. */
interface Address {
  server: RedisServer;
  door: TcpProxy;
}

async function address(): Promise<Address> {
  const server = await redisServer();
  return { server, door: await proxyTo(server) };
}

/** The server becomes a replica, and keeps its connections. */
async function becomesReplica({ server }: Address, of: RedisServer): Promise<void> {
  await server.command('REPLICAOF', '127.0.0.1', of.port);
  expect(String(await server.command('INFO', 'replication'))).toContain('role:slave');
}

/** A lock is taken and released, so each connection is there. */
async function inUse(options: RedisLockModuleOptions): Promise<LockBackend> {
  const backend = await connected({ commandTimeoutMs: 20_000, ...options });
  onTestFinished(() => backend.close());
  const claim = claimOn(freshKey());
  await granted(backend, claim);
  await releaseOn(backend, claim);
  return backend;
}

const attempt = (backend: LockBackend) => acquireOn(backend, claimOn(freshKey()));
const acquired = (backend: LockBackend) =>
  until(async () => (await attempt(backend)).status === 'acquired', { what: 'a lock is granted' });
const readOnly = expect.objectContaining({ problem: expect.stringContaining('READONLY') });

describe('A primary that became a replica and kept its connections', () => {
  it.each([
    ['a URL', ({ door }: Address) => door.url],
    ['options', ({ door }: Address) => ({ host: '127.0.0.1', port: door.port })],
    [
      'a function',
      ({ door }: Address) =>
        () =>
          new Redis(door.url),
    ],
  ])('a demoted primary is left for the one at its address by a client made from %s [G64]', async (_source, source) => {
    const [old, next] = [await address(), await redisServer()];
    const backend = await inUse({ redis: source(old) });
    await becomesReplica(old, next);
    old.door.retarget(next.port);
    await acquired(backend);
  });

  it('is left where locks wait for replicas, too', async () => {
    const [old, next] = [await address(), await redisServer()];
    const replica = await redisServer('--replicaof', '127.0.0.1', String(old.server.port));
    const follows = async (primary: RedisServer) =>
      until(async () => String(await primary.command('INFO', 'replication')).includes('state=online'), {
        what: 'the replica follows',
      });
    await follows(old.server);
    const backend = await inUse({
      redis: old.door.url,
      ttlMs: 60_000,
      waitForReplicas: { count: 1, timeoutMs: 20_000 },
    });
    await becomesReplica(old, next);
    await replica.command('REPLICAOF', '127.0.0.1', next.port);
    old.door.retarget(next.port);
    await follows(next);
    await acquired(backend);
  });

  it('is left on each node of a Redlock', async () => {
    const old = [await address(), await address(), await address()];
    await letVote(old.map(({ server }) => server));
    const backend = await inUse({ redlock: old.map(({ door }) => door.url) });
    const next = await redisServers(2); // they vote at once
    for (const [index, server] of next.entries()) {
      await becomesReplica(old[index]!, server);
      old[index]!.door.retarget(server.port);
    }
    expect(await attempt(backend)).toEqual({ status: 'unavailable', causes: [readOnly, readOnly] });
    await acquired(backend);
  });

  it('is left by a Cluster, whose client is sent on by the server itself', async () => {
    const cluster = await RedisCluster.start();
    onTestFinished(() => cluster.stop());
    const replica = await cluster.addReplica();
    const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
    const backend = await inUse({ redis: () => new Cluster(nodes) });
    expect(await replica.command('CLUSTER', 'FAILOVER', 'TAKEOVER')).toBe('OK');
    const isReplica = async () => String(await cluster.nodes[0]!.command('INFO', 'replication')).includes('role:slave');
    await until(isReplica, { what: 'the master has become a replica' });
    const keys = ['{a}', '{b}', '{c}'].map((tag) => freshKey(tag)); // one of each master
    for (const key of keys) {
      await until(async () => (await acquireOn(backend, claimOn(key))).status === 'acquired', {
        what: `the lock ${key} is granted`,
      });
    }
  });

  it('a demoted primary is asked again at most once a second while its address leads to no other server [G65]', async () => {
    const [old, next] = [await address(), await redisServer()];
    const backend = await inUse({ redis: old.door.url });
    await becomesReplica(old, next);
    const [startedAt, before] = [performance.now(), old.door.made];
    await until(
      async () => {
        expect(await attempt(backend)).toEqual({ status: 'unavailable', causes: [readOnly] });
        return old.door.made >= before + 3;
      },
      { what: 'the connection was made anew three times' },
    );
    const seconds = (performance.now() - startedAt) / 1_000;
    expect(old.door.made - before).toBeLessThanOrEqual(1 + seconds);
  });

  it('keeps a client of the application, and the error says what to do with it', async () => {
    const [old, next] = [await address(), await redisServer()];
    const client = new Redis(old.door.url);
    onTestFinished(() => client.disconnect());
    const backend = await inUse({ redis: client, commandTimeoutMs: 500 });
    await becomesReplica(old, next);
    old.door.retarget(next.port);
    const before = old.door.made;
    for (let call = 0; call < 20; call++) {
      expect(await attempt(backend)).toEqual({
        status: 'unavailable',
        causes: [
          expect.objectContaining({
            problem: expect.stringContaining('READONLY'),
            advice: expect.stringContaining('client.disconnect(true)'),
          }),
        ],
      });
    }
    expect(old.door.made).toBe(before);
    client.disconnect(true);
    await acquired(backend);
  });
});
