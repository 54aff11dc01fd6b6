import { expect, it, onTestFinished } from 'vitest';
import { LockOptionsError } from 'nest-redis-lock';
import type { RedisCluster } from '../support/redis-cluster.js';
import { redisCluster } from '../support/stage.js';
import { until } from '../support/until.js';
import { NOT_LISTENING, describeAdapter } from './describe-adapter.js';
import { PACKAGES } from './packages.js';

// In simulated time.

const nodeRedis = PACKAGES['node-redis']!.driver;

for (const [name, each] of Object.entries(PACKAGES)) describeAdapter(name, each);

it.each<[url: string, name: string, database: number, connectionName: string]>([
  ['redis://a.example?db=2', 'a.example:6379', 2, 'default'],
  ['redis://[::1]:7000/3', '::1:7000', 3, 'default'],
  ['redis://a.example?connectionName=mine', 'a.example:6379', 0, 'mine'],
])('the URL %s means the same to node-redis by itself and in options', async (url, name, database, connectionName) => {
  for (const source of [url, { url }]) {
    const client = await nodeRedis.open(source, 'default');
    onTestFinished(() => client.close());
    expect([client.name, client.topology.database, client.connectionName]).toEqual([name, database, connectionName]);
  }
});

const sentinels = { name: 'main', sentinelRootNodes: [{ host: 'a.example', port: 26_379 }] };
const ALONE = { username: 'locks' };

it.each<[where: string, source: string | object]>([
  ['a URL', 'redis://locks@a.example'],
  ['the url of options', { url: 'redis://locks:@a.example' }],
  ['options', { ...ALONE, socket: { host: 'a.example' } }],
  ['the defaults of a Cluster', { rootNodes: [{ url: 'redis://a.example' }], defaults: ALONE }],
  ['the options of masters behind Sentinels', { ...sentinels, nodeClientOptions: ALONE }],
  ['the options of Sentinels', { ...sentinels, sentinelClientOptions: ALONE }],
])(
  'a username without a password, with which node-redis would not log in, is refused in %s [G861]',
  async (_, source) => {
    const opening = nodeRedis.open(source as string, 'default');
    await expect(opening).rejects.toThrow('have a user name without a password: the client would not log in');
    await expect(opening).rejects.toBeInstanceOf(LockOptionsError);
  },
);

/** A client of the Cluster that is ready. */
async function readyIn(cluster: RedisCluster) {
  const client = await nodeRedis.open({ rootNodes: cluster.nodes.map(({ url }) => ({ url })) } as never, 'test');
  onTestFinished(() => client.close());
  client.listen(NOT_LISTENING);
  client.connect();
  await until(() => client.isReady, { what: 'it is ready' });
  return client;
}

it('the adapter of node-redis does not reconnect to a node that is no longer a master of its Cluster', async () => {
  const cluster = await redisCluster();
  const replica = await cluster.addReplica();
  const client = await readyIn(cluster);
  const [old] = cluster.nodes;
  const master = client.topology.masters().find(({ name }) => name === `127.0.0.1:${old!.port}`)!;
  expect(await master.call('PING')).toBe('PONG');
  await replica.command('CLUSTER', 'FAILOVER', 'TAKEOVER');
  const script = { sha: '0'.repeat(40), source: 'return 1' };
  const key = 'b';
  const hasLeft = async () => {
    await new Promise<void>((done) => {
      client.run({
        script,
        keys: [key],
        args: [],
        isWanted: true,
        sentAgain() {},
        answered: () => done(),
        failed: () => done(),
      });
    });
    return !client.topology.masters().includes(master);
  };
  await until(hasLeft, { what: 'it is known to have left' });
  await expect(master.call('PING')).rejects.toMatchObject({ kind: 'disconnected' });
  expect(String(await old!.command('CLIENT', 'LIST'))).not.toContain(' name=test ');
});

it('a Cluster of node-redis publishes through the remaining masters when one is gone', async () => {
  const cluster = await redisCluster();
  const client = await readyIn(cluster);
  const masters = client.topology.masters();
  for (const master of masters) await master.call('PING');
  await cluster.nodes[0]!.kill();
  await until(() => masters.some(({ isReady }) => !isReady), { what: 'it knows about it' });
  for (const _ of masters) expect(await client.messages.publish('news', 'text')).toBe(0);
});
