import { setTimeout as sleep } from 'node:timers/promises';
import { createClient, createCluster } from 'redis';
import { expect, it, onTestFinished } from 'vitest';
import { LockOptionsError } from 'nest-redis-lock';
import type { NodeRedisOptions } from '../../lib/stores/redis/client/source.js';
import { NodeRedisAdapter } from '../../lib/stores/redis/node-redis/node-redis-adapter.js';
import { nodeRedis } from '../../lib/stores/redis/node-redis/node-redis-driver.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { describeAdapter } from './describe-adapter.js';
import { PACKAGES } from './packages.js';

// In simulated time.

for (const [name, each] of Object.entries(PACKAGES)) describeAdapter(name, each);

it('a Sentinel is not asked for its master once the adapter for node-redis is closed, and is closed again if it was being asked', async () => {
  let [asked, closed] = [0, 0];
  let refuse = () => {};
  const another = () => {
    asked++;
    return new Promise<never>((_, reject) => (refuse = () => reject(new Error('no Sentinel answers'))));
  };
  const onClose = () => void closed++;
  const open = () => {
    const client = new NodeRedisAdapter({ name: 'sentinel master', isOwned: true, asksAgain: true, another, onClose });
    client.listen({ accepted() {}, ready() {}, closed() {}, ended() {}, failed() {} });
    client.connect();
    return client;
  };
  const pausing = open();
  refuse();
  await sleep(10); // it will ask again after a pause
  pausing.close();
  await sleep(2_000);
  expect([asked, closed]).toEqual([1, 1]);
  const asking = open();
  asking.close();
  refuse();
  await sleep(2_000);
  expect([asked, closed]).toEqual([2, 3]);
});

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

it('options beside a URL count where it does not say otherwise', async () => {
  const client = await nodeRedis.open({ url: 'redis://a.example', database: 3, name: 'mine' }, 'default');
  onTestFinished(() => client.close());
  expect([client.topology.database, client.connectionName]).toEqual([3, 'mine']);
});

const sentinels = { name: 'main', sentinelRootNodes: [{ host: 'a.example', port: 26_379 }] };
const ALONE = { username: 'locks' };

it.each<[where: string, source: string | NodeRedisOptions]>([
  ['a URL', 'redis://locks@a.example'],
  ['the url of options', { url: 'redis://locks:@a.example' }],
  ['options', { ...ALONE, socket: { host: 'a.example' } }],
  ['the defaults of a Cluster', { rootNodes: [{ url: 'redis://a.example' }], defaults: ALONE }],
  ['the options of masters behind Sentinels', { ...sentinels, nodeClientOptions: ALONE }],
  ['the options of Sentinels', { ...sentinels, sentinelClientOptions: ALONE }],
])(
  'a username without a password, with which node-redis would not log in, is refused in %s [G861]',
  async (_, source) => {
    const opening = nodeRedis.open(source, 'default');
    await expect(opening).rejects.toThrow('have a username without a password: it would not log in');
    await expect(opening).rejects.toBeInstanceOf(LockOptionsError);
  },
);

it.each<[what: string, source: string | NodeRedisOptions]>([
  ['both', 'redis://locks:secret@a.example'],
  ['a password in options beside it', { url: 'redis://locks@a.example', password: 'secret' }],
  ['the user "default"', 'redis://default@a.example'],
  ['a provider of credentials', { ...ALONE, url: 'redis://a.example', credentialsProvider: provider() }],
])('a client of node-redis may log in with %s', async (_, source) => {
  const client = await nodeRedis.open(source, 'default');
  onTestFinished(() => client.close());
  expect(client.name).toBe('a.example:6379');
});

function provider() {
  return { type: 'async-credentials-provider' as const, credentials: async () => ({ password: 'secret' }) };
}

it('a client of node-redis that the application has closed and connected again has not ended', async () => {
  const server = await RedisServer.start();
  onTestFinished(() => server.stop());
  const given = createClient({ url: server.url });
  await given.connect();
  const client = await nodeRedis.open(given, 'test');
  onTestFinished(() => client.close());
  onTestFinished(() => given.destroy());
  client.listen(DEAF);
  given.destroy();
  await until(() => client.isEnded, { what: 'it has ended' });
  await given.connect();
  expect([client.isReady, client.isEnded]).toEqual([true, false]);
});

it('a Cluster of node-redis that the application is connecting is ready when it knows the masters of the slots, or when it could be connected later', async () => {
  const cluster = await RedisCluster.start();
  onTestFinished(() => cluster.stop());
  const rootNodes = cluster.nodes.map(({ url }) => ({ url }));
  const open = async (given: ReturnType<typeof createCluster>) => {
    const connecting = given.on('error', () => {}).connect();
    const client = await nodeRedis.open(given, 'test');
    onTestFinished(() => client.close());
    onTestFinished(() => given.destroy());
    client.listen(DEAF);
    client.connect();
    return { connecting, client };
  };
  const { client } = await open(createCluster({ rootNodes }));
  await until(() => client.isReady, { what: 'it is ready' });
  expect(client.topology.masters()).toHaveLength(3);
  const [node] = cluster.nodes;
  await node!.kill();
  const early = await open(createCluster({ rootNodes: [{ url: node!.url }] }));
  await expect(early.connecting).rejects.toThrow();
  expect(early.client.isEnded).toBe(false);
  await node!.restart();
  await until(() => early.client.isReady, { what: 'it is ready later' });
});

it('a node that has left the masters of a Cluster of node-redis is not connected to again', async () => {
  const cluster = await RedisCluster.start();
  onTestFinished(() => cluster.stop());
  const replica = await cluster.addReplica();
  const client = await nodeRedis.open({ rootNodes: cluster.nodes.map(({ url }) => ({ url })) }, 'test');
  onTestFinished(() => client.close());
  client.listen(DEAF);
  client.connect();
  await until(() => client.isReady, { what: 'it is ready' });
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

it('a Cluster of node-redis publishes by the masters that are left when one is gone', async () => {
  const cluster = await RedisCluster.start();
  onTestFinished(() => cluster.stop());
  const client = await nodeRedis.open({ rootNodes: cluster.nodes.map(({ url }) => ({ url })) }, 'test');
  onTestFinished(() => client.close());
  client.listen(DEAF);
  client.connect();
  await until(() => client.isReady, { what: 'it is ready' });
  const masters = client.topology.masters();
  for (const master of masters) await master.call('PING');
  await cluster.nodes[0]!.kill();
  await until(() => masters.some(({ isReady }) => !isReady), { what: 'it knows' });
  for (const _ of masters) expect(await client.messages.publish('news', 'text')).toBe(0);
});

it('a Cluster of node-redis that is closed while it connects to a master leaves no connection', async () => {
  const cluster = await RedisCluster.start(1);
  onTestFinished(() => cluster.stop());
  const [node] = cluster.nodes;
  const named = async (name: string) => String(await node!.command('CLIENT', 'LIST')).includes(` name=${name} `);
  for (let turns = 0; turns < 8; turns++) {
    const client = await nodeRedis.open({ rootNodes: [{ url: node!.url }] }, 'left');
    client.listen(DEAF);
    client.connect();
    await until(() => client.isReady, { what: 'it is ready' });
    client.call('PING').catch(() => {});
    for (let turn = 0; turn < turns; turn++) await new Promise(setImmediate);
    client.close();
  }
  await sleep(5_000); // longer than it may take to connect
  expect(await named('left')).toBe(false);
});

it('a Cluster of node-redis whose nodes hang is not waited for without end', async () => {
  const cluster = await RedisCluster.start(1);
  onTestFinished(() => cluster.stop());
  const [node] = cluster.nodes;
  node!.pause();
  const client = await nodeRedis.open({ rootNodes: [{ url: node!.url }] }, 'test');
  onTestFinished(() => client.close());
  client.listen(DEAF);
  client.connect();
  await until(() => client.failure, { what: 'it says why it is not connected' });
  node!.resume();
  await until(() => client.isReady, { what: 'it is ready' });
});

const DEAF = { accepted() {}, ready() {}, closed() {}, ended() {}, failed() {} };
