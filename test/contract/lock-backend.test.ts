import { Cluster } from 'ioredis';
import { expect } from 'vitest';
import { RedisCluster } from '../support/redis-cluster.js';
import { letVote } from '../support/let-vote.js';
import { RedisServer } from '../support/redis-server.js';
import { connected, now } from '../support/claims.js';
import { until } from '../support/until.js';
import { isCounter } from '../support/stored.js';
import { fromPromises } from 'nest-redis-lock/testing';
import { ToyBackend } from './toy-backend.js';
import { ToyCrowd } from './toy-crowd.js';
import { ToyWatched } from './toy-watched.js';
import { describeContract } from './describe-contract.js';

// In simulated time.

/** The keys that Redis keeps: fencing counters, which locks share, and which have no ttl. */
function onlyCounters(servers: readonly RedisServer[]) {
  return async (prefix: string): Promise<void> => {
    for (const server of servers) {
      // A Redlock does not wait for the last of its nodes.
      await until(async () => (await server.keys(`*${prefix}*`)).length === 0, { what: 'all locks are released' });
      const counters = await server.keys('*:fence*');
      expect(counters.filter((name) => !isCounter(name))).toEqual([]);
      expect(counters.length).toBeGreaterThan(0);
      for (const name of counters) expect(await server.command('PTTL', name)).toBe(-1);
    }
  };
}

/** How long a busy machine may take for 300 simultaneous operations. */
const commandTimeoutMs = 20_000;

const startServers = async (count: number): Promise<RedisServer[]> =>
  letVote(await Promise.all(Array.from({ length: count }, () => RedisServer.start())));
const stopServers = (servers: readonly RedisServer[]) => Promise.all(servers.map((server) => server.stop()));
const urls = (servers: readonly RedisServer[]) => servers.map(({ url }) => url);

describeContract('one Redis server', async () => {
  const server = await RedisServer.start();
  return {
    backend: await connected({ redis: server.url, commandTimeoutMs }),
    checkLeft: onlyCounters([server]),
    tearDown: () => server.stop(),
  };
});

describeContract('a Redlock of 3 servers', async () => {
  const servers = await startServers(3);
  return {
    backend: await connected({ redlock: urls(servers), commandTimeoutMs }),
    checkLeft: onlyCounters(servers),
    tearDown: () => stopServers(servers),
  };
});

describeContract('the memory of this process', async () => ({
  backend: await connected({ memory: true }),
}));

describeContract('a toy backend, written with promises', async () => ({
  backend: fromPromises(new ToyBackend(now), now),
}));

describeContract('a toy backend that watches', async () => ({
  backend: fromPromises(new ToyWatched(now), now),
}));

describeContract('a toy backend, whose locks several may hold', async () => ({
  backend: fromPromises(new ToyCrowd(now), now),
}));

describeContract('a Redis Cluster of 3 masters, by a client of the application', async () => {
  const cluster = await RedisCluster.start(3);
  const client = new Cluster(cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })));
  return {
    backend: await connected({ redis: client, commandTimeoutMs }),
    checkLeft: onlyCounters(cluster.nodes),
    tearDown: async () => {
      await client.ping(); // rejects if the backend has closed it
      client.disconnect();
      return cluster.stop();
    },
  };
});
