import { createClient, createCluster } from 'redis';
import { beforeAll } from 'vitest';
import { describeContract } from '../contract/describe-contract.js';
import { connected } from '../support/claims.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';

/** How long 300 operations at once may take a busy machine. */
const commandTimeoutMs = 20_000;

describeContract('one Redis server, with node-redis', async () => {
  const server = await RedisServer.start();
  return {
    backend: await connected({ redis: { url: server.url }, commandTimeoutMs }),
    tearDown: () => server.stop(),
  };
});

describeContract('one Redis server, by a client of node-redis of the application', async () => {
  const server = await RedisServer.start();
  const client = createClient({ url: server.url });
  return {
    backend: await connected({ redis: client, commandTimeoutMs }),
    tearDown: async () => {
      await client.ping(); // rejects if the backend has closed it
      client.destroy();
      await server.stop();
    },
  };
});

/** It gets ready while the tests of the others run. */
let starting: Promise<RedisCluster>;
beforeAll(() => {
  starting = RedisCluster.start(3);
});

describeContract('a Redis Cluster of 3 masters, by a client of node-redis of the application', async () => {
  const cluster = await starting;
  const client = createCluster({ rootNodes: cluster.nodes.map(({ url }) => ({ url })) });
  return {
    backend: await connected({ redis: client, commandTimeoutMs }),
    tearDown: async () => {
      client.destroy();
      return cluster.stop();
    },
  };
});
