import { Cluster, type ClusterOptions, type RedisOptions } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { until } from '../support/until.js';
import { channels, isHandedTo, listens, sum } from './hand-off.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
  await loadScripts(server);
});
afterAll(() => server.stop());

it('a released lock reaches a waiter in another process by one release and one confirmation [G99]', async () => {
  const start = () => LockProcess.start({ redis: server.url });
  const [holder, waiter] = await Promise.all([start(), start()]);
  const before = await channels(server);
  await holder.acquire('before');
  const earlier = waiter.acquire('before');
  await until(async () => (await channels(server)) > before, { what: 'it listens' });
  await holder.release('before');
  await earlier;
  const { fencingToken } = await holder.acquire('processes');
  const waiting = waiter.acquire('processes');
  await untilQueued(server, 'processes', 1);
  await server.resetCalls();
  await holder.release('processes');
  const lock = await waiting;
  await until(async () => (await scriptCalls(server)) === 2, { what: 'it extends what was handed over' });
  expect(lock.owner).toContain(`/${waiter.pid}/`);
  expect(lock.fencingToken).toBeGreaterThan(fencingToken);
  expect(await queued(server, 'processes')).toBe(0);
});

const HANDED: [string, RedisOptions][] = [
  ['RESP3', {}],
  ['another database', { db: 3 }],
  ['a password', { username: 'app', password: 'secret' }],
];

it.each(HANDED)('clients of the application may have %s: they are handed locks, too', async (name, options) => {
  await server.command('ACL', 'SETUSER', 'app', 'on', '>secret', 'allkeys', 'allchannels', 'allcommands');
  await isHandedTo(server, `handed ${name}`, options);
});

describe('in a Cluster without sharded publish/subscribe', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await RedisCluster.start(3);
    await cluster.forbid();
    await Promise.all(cluster.nodes.map(loadScripts));
  });
  afterAll(() => cluster.stop());

  const connect = (options: ClusterOptions) =>
    new Cluster(
      cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
      options,
    );

  const CLUSTERS: [string, ClusterOptions][] = [
    ['default options', {}],
    ['a key prefix', { keyPrefix: 'app:' }],
    ['a key prefix for its nodes', { redisOptions: { keyPrefix: 'app:' } }],
    ['a password', { redisOptions: { username: 'app', password: 'secret' } }],
  ];

  it.each(CLUSTERS)('locks are handed over on every node (%s)', async (name, options) => {
    // Who has lost the password could not subscribe.
    for (const node of cluster.nodes) {
      await node.command(
        'ACL',
        'SETUSER',
        'app',
        'on',
        '>secret',
        'allkeys',
        'allchannels',
        'allcommands',
        '-ssubscribe',
      );
      await node.command('ACL', 'SETUSER', 'default', options.redisOptions?.password ? 'resetchannels' : 'allchannels');
    }
    onTestFinished(async () => {
      for (const node of cluster.nodes) await node.command('ACL', 'SETUSER', 'default', 'allchannels');
    });
    const keyPrefix = options.keyPrefix ?? options.redisOptions?.keyPrefix ?? '';
    const locks = await openLocks({ redis: () => connect(options) });
    const handed = connect(options);
    onTestFinished(() => handed.disconnect());
    const others = await openLocks({ redis: handed });
    await listens(cluster.nodes, locks, others, name);
    const counts: number[] = [];
    for (let index = 0; index < 6; index++) {
      const key = `${name} ${index}`;
      const holder = await locks.acquire(key);
      const waiting = others.acquire(key);
      const queue = `${keyPrefix}lock:{${key}}:queue`;
      const entries = (node: RedisServer) => node.command('ZCOUNT', queue, '0', '+inf').then(Number, () => 0);
      await until(async () => (await sum(cluster.nodes, entries)) === 1, { what: 'it waits' });
      await Promise.all(cluster.nodes.map((node) => node.resetCalls()));
      await holder.release();
      const lock = await waiting;
      await until(async () => (await sum(cluster.nodes, scriptCalls)) >= 2, {
        what: 'it extends what was handed over',
      });
      counts.push(await sum(cluster.nodes, scriptCalls));
      expect(lock.fencingToken).toBeGreaterThan(holder.fencingToken);
      await lock.release();
    }
    expect(counts).toEqual([2, 2, 2, 2, 2, 2]);
    expect(await sum(cluster.nodes, channels)).toBe(1);
    await others.onApplicationShutdown();
    await until(async () => (await sum(cluster.nodes, channels)) === 0, { what: 'nobody listens' });
    expect(await handed.ping()).toBe('PONG');
  });

  it('a grant stands although the node that makes it does not see who listens: nobody else is woken', async () => {
    const make = () => openLocks({ redis: () => connect({}), fair: true });
    const services = await Promise.all([make(), make(), make()]);
    const places = (key: string) => sum(cluster.nodes, (node) => queued(node, key).catch(() => 0)); // two of three say that it is elsewhere
    for (const key of ['stands 1', 'stands 2', 'stands 3', 'stands 4']) {
      const holder = await services[0]!.acquire(key);
      const order: number[] = [];
      const calls: Promise<void>[] = [];
      for (const index of [1, 2]) {
        calls.push(services[index]!.withLock(key, () => void order.push(index)));
        await until(async () => (await places(key)) === index, { what: `${index} wait` });
      }
      await holder.release();
      await Promise.all(calls);
      expect(order).toEqual([1, 2]);
    }
  });
});
