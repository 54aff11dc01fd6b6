import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import type { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { tryMajority } from '../support/naive.js';
import { clientOf, freeOn, ownersOf, proxyTo, redisServers } from '../support/stage.js';

const LONG_TTL_MS = 60_000;

/** Ways of each of three clients to each of three nodes. */
function waysTo(nodes: readonly RedisServer[]): Promise<TcpProxy[][]> {
  return Promise.all([0, 1, 2].map(() => Promise.all(nodes.map(proxyTo))));
}

/** Has all three ask at once, and client 0 first reach node 0, client 1 node 1, and client 2 node 2. */
async function splitVotes<T>(
  nodes: readonly RedisServer[],
  ways: readonly TcpProxy[][],
  name: string,
  ask: (client: number) => Promise<T>,
): Promise<Promise<T>[]> {
  const slow = ways.flatMap((row, client) => row.filter((_, node) => node !== client));
  for (const way of slow) way.hold();
  const asking = ways.map((_, client) => ask(client));
  const haveVoted = async () => (await Promise.all(nodes.map((node) => node.command('EXISTS', name)))).every(Boolean);
  await until(haveVoted, { what: 'each node has voted for another client' });
  for (const way of slow) way.release();
  return asking;
}

describe('H13: three clients win one of three nodes each', () => {
  it('a naive Redlock keeps the minority of a split vote, and nobody wins, now or later', async () => {
    const nodes = await redisServers(3);
    const ways = await waysTo(nodes);
    const clients = ways.map((row) => row.map((way) => clientOf(way)));
    await Promise.all(clients.flat().map((client) => client.ping()));

    const lock = (client: number) => tryMajority(clients[client]!, 'lock', `client ${client}`, LONG_TTL_MS);
    expect(await Promise.all(await splitVotes(nodes, ways, 'lock', lock))).toEqual([false, false, false]);
    expect(await Promise.all([0, 1, 2].map(lock))).toEqual([false, false, false]);
    const values = await Promise.all(nodes.map((node) => node.command('GET', 'lock')));
    expect(values).toEqual(['client 0', 'client 1', 'client 2']); // for all of the ttl
  });

  it('this library keeps no minority of a split vote, and each contender wins in turn, long before the ttl is over [G162]', async () => {
    const nodes = await redisServers(3);
    const ways = await waysTo(nodes);
    const services = await Promise.all(
      ways.map((row) => openLocks({ redlock: row.map(({ url }) => url), ttlMs: LONG_TTL_MS, commandTimeoutMs: 5_000 })),
    );
    for (const locks of services) await locks.withLock('scripts are loaded', () => {});
    const owners = new Set<string>();
    const work = (client: number) =>
      services[client]!.withLock('key', { ttlMs: LONG_TTL_MS, waitMs: 10_000 }, async (lock) => {
        const held = (await ownersOf(nodes, 'key')).filter((owner) => owner === lock.owner);
        expect(held.length).toBeGreaterThanOrEqual(2);
        owners.add(lock.owner);
      });
    await Promise.all(await splitVotes(nodes, ways, 'lock:{key}', work));
    expect(owners.size).toBe(3);
    await freeOn(nodes, 'key');
  });
});
