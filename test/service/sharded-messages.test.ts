import type { ClusterOptions } from 'ioredis';
import { beforeAll, expect, it, onTestFinished } from 'vitest';
import { keysFor, masterOf, SlotMove } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { RedisCluster } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { clientOfCluster, proxyTo, redisCluster } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';
import { open, plainChannels, REQUEST, shardChannels, signs, sum, untilSigns } from './cluster-messages.js';
import { contender } from './contender.js';

/** The interval of the checks of a waiting call. In milliseconds. */
const CHECK_MS = 1_000;

/** How many messages of publish/subscribe the server has sent to other nodes. */
async function messagesOnTheBus(server: RedisServer): Promise<number> {
  const info = String(await server.command('CLUSTER', 'INFO'));
  return [...info.matchAll(/^cluster_stats_messages_publish(?:shard)?_sent:(\d+)/gm)].reduce(
    (total, [, count]) => total + Number(count),
    0,
  );
}

/**
 * Repeats the action until it took less time than the interval of a waiter's checks, whose commands could not be
 * distinguished.
 */
async function betweenChecks<Result>(act: () => Promise<Result>): Promise<Result> {
  for (;;) {
    const startedAt = performance.now();
    const result = await act();
    if (performance.now() - startedAt < CHECK_MS * 0.9) return result; // one may come a little early, together with others
  }
}

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await RedisCluster.start();
  await Promise.all(cluster.nodes.map(loadScripts));
  return () => cluster.stop();
});

const CLIENTS: [string, ClusterOptions][] = [
  ['default options', {}],
  ['a key prefix', { keyPrefix: 'app:' }],
  ['a key prefix with a hash tag', { keyPrefix: '{app}:' }],
  ['a key prefix for its nodes', { redisOptions: { keyPrefix: 'app:' } }],
  ['RESP2', { redisOptions: { protocol: 2 } }],
];

it.each(CLIENTS)(
  'locks are handed over on every node of a Cluster by two commands, and no node sends a message to others (%s) [G291]',
  async (name, options) => {
    const keyPrefix = options.keyPrefix ?? options.redisOptions?.keyPrefix ?? '';
    const [locks, others] = await Promise.all(
      [1, 2].map(() => openLocks({ redis: () => clientOfCluster(cluster, options) })),
    );
    const before = await sum(cluster.nodes, messagesOnTheBus);
    const handOver = async (key: string) => {
      const node = masterOf(cluster, `${keyPrefix}lock:{${key}}`);
      const holder = await locks!.acquire(key, REQUEST);
      const waiting = others!.acquire(key, REQUEST);
      await untilSigns(node, key, 'h', keyPrefix);
      await Promise.all(cluster.nodes.map((each) => each.resetCalls()));
      await holder.release();
      const lock = await waiting;
      expect(lock.fencingToken).toBeGreaterThan(holder.fencingToken);
      const calls = () => sum(cluster.nodes, scriptCalls);
      await until(async () => (await calls()) >= 2, { what: 'it extends what was handed over' });
      const { spublish } = await node.calls();
      const counts = [await calls(), spublish];
      await lock.release();
      return counts;
    };
    for (let index = 0; index < 6; index++) {
      expect(await betweenChecks(() => handOver(`${name} ${index}`))).toEqual([2, 1]);
    }
    expect((await sum(cluster.nodes, messagesOnTheBus)) - before).toBe(0);
  },
);

it('a process listens on each master that it waits on, with one connection, and on none after it was closed [G292]', async () => {
  const client = clientOfCluster(cluster);
  onTestFinished(() => client.disconnect());
  const [holding, waits] = [await open(cluster), await openLocks({ redis: client })];
  const subscribers = async () =>
    Promise.all(
      cluster.nodes.map(async (node) => {
        const list = String(await node.command('CLIENT', 'LIST', 'TYPE', 'pubsub'));
        return list.split('\n').filter((line) => line.includes('nest-redis-lock')).length;
      }),
    );
  const listens = async (...expected: number[]) =>
    until(async () => JSON.stringify(await subscribers()) === JSON.stringify(expected), {
      what: `${expected.join()} connections listen`,
    });
  const keys = keysFor(cluster, 'each master');
  const holders = await Promise.all(keys.map((key) => holding.acquire(key, { ttlMs: 60_000 })));
  const waitings: Promise<unknown>[] = [];
  for (const [index, key] of keys.entries()) {
    await listens(...keys.map((_, at) => (at < index ? 1 : 0)));
    waitings.push(waits.acquire(key, REQUEST));
  }
  await listens(1, 1, 1);
  const further = keysFor(cluster, 'another slot');
  holders.push(...(await Promise.all(further.map((key) => holding.acquire(key)))));
  waitings.push(...further.map((key) => waits.acquire(key, REQUEST)));
  await until(async () => (await sum(cluster.nodes, shardChannels)) === 6, {
    what: 'it has a channel for each slot',
  });
  await listens(1, 1, 1);
  expect(await sum(cluster.nodes, plainChannels)).toBe(0);
  await Promise.all(holders.map((holder) => holder.release()));
  await Promise.all(waitings);
  await waits.onApplicationShutdown();
  await listens(0, 0, 0);
  expect(await client.ping()).toBe('PONG');
});

it('an election in a Cluster hands its lock over to the next when the leader resigns or closes [G309]', async () => {
  const services = [await open(cluster), await open(cluster), await open(cluster)];
  const leaders = services.map((service) => service.leader('election in a Cluster'));
  const terms: number[] = [];
  const leads = async () => {
    const leader = await until(() => leaders.find(({ isLeader }) => isLeader), { what: 'a leader' });
    terms.push(leader.term!);
    return leader;
  };
  const first = await leads();
  await untilQueued(masterOf(cluster, 'lock:{election in a Cluster}'), 'election in a Cluster', 2);
  await first.resign();
  const second = await leads();
  await services[leaders.indexOf(second)]!.onApplicationShutdown();
  const third = await leads();
  expect(new Set([first, second, third]).size).toBe(3);
  expect(terms).toEqual([...terms].sort((a, b) => a - b));
  expect(leaders.filter(({ isLeader }) => isLeader)).toEqual([third]);
});

it('a call that waits while the slot of its lock moves to another master gets the lock there, and listens there [G296]', async () => {
  const [key] = keysFor(cluster, 'moves');
  const [holding, waits] = [await open(cluster), await open(cluster)];
  const holder = await holding.acquire(key!, { ttlMs: 60_000 });
  const first = waits.acquire(key!, REQUEST);
  const [from, to] = cluster.nodes as [RedisServer, RedisServer];
  const migration = new SlotMove(cluster, key!, to);
  await untilSigns(from, key!, 'h');
  await migration.begin();
  await migration.moveAll();
  await migration.end();
  await until(async () => (await shardChannels(to)) === 1, { what: 'it listens to the new master' });
  await untilSigns(to, key!, 'h');
  await to.resetCalls();
  await holder.release();
  const owner = await ownerOn(to, key!);
  expect((await to.calls()).spublish).toBeGreaterThan(0);
  const lock = await first;
  expect(owner).toBe(lock.owner);
  await lock.release();
  await Promise.all([holding, waits].map((locks) => locks.onApplicationShutdown()));
});

const isMaster = async (node: RedisServer) => String(await node.command('ROLE')).startsWith('master');

it('a call that waited before a failover of the Cluster gets the lock from the new master, and listens there [G297]', async () => {
  const cluster = await redisCluster();
  const replica = await cluster.addReplica();
  const [key] = keysFor(cluster, 'failover');
  const [holding, waits] = [await open(cluster), await open(cluster)];
  const holder = await holding.acquire(key!, { ttlMs: 60_000 });
  const waiting = waits.acquire(key!, REQUEST);
  await untilSigns(cluster.nodes[0]!, key!, 'h');
  const hasItAll = async () => Number(await cluster.nodes[0]!.command('WAIT', 1, 1_000)) === 1;
  await until(hasItAll, { what: 'the replica has it all' });
  await replica.command('CLUSTER', 'FAILOVER', 'TAKEOVER');
  await until(() => isMaster(replica), { what: 'the replica has taken over' });
  await until(async () => (await shardChannels(replica)) === 1, { what: 'it listens to the new master' });
  await untilSigns(replica, key!, 'h');
  await replica.resetCalls();
  await holder.release();
  const owner = await ownerOn(replica, key!);
  expect((await replica.calls()).spublish).toBeGreaterThan(0);
  const lock = await waiting;
  expect(owner).toBe(lock.owner);
  await lock.release();
});

it('a process whose connection for sharded messages hangs listens again on a new one [G298]', async () => {
  const cluster = await redisCluster();
  const proxies = await Promise.all(cluster.nodes.map(proxyTo));
  const natMap = Object.fromEntries(
    cluster.nodes.map(({ port }, index) => [`127.0.0.1:${port}`, { host: '127.0.0.1', port: proxies[index]!.port }]),
  );
  const [key] = keysFor(cluster, 'hangs');
  const [node] = cluster.nodes;
  const services = [await openLocks({ redis: () => clientOfCluster(cluster, { natMap }) }), await open(cluster)];
  const counts = services.map((locks) => contender(locks, key!));
  await until(async () => (await shardChannels(node!)) === 2, { what: 'both listen' });
  await until(() => counts.every(({ turns }) => turns > 5), { what: 'both have turns' });
  const made = proxies[0]!.made;
  proxies[0]!.muteSubscriptions();
  await until(() => proxies[0]!.made > made, { what: 'it has made another connection' });
  const before = counts.map(({ turns }) => turns);
  await until(() => counts.every(({ turns }, index) => turns > before[index]! + 10), { what: 'both have turns again' });
  await until(async () => (await signs(node!, key!)).includes('h'), { what: 'they listen' });
});
