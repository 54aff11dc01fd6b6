import { Cluster, type ClusterOptions, type RedisOptions } from 'ioredis';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { CHECK_MS } from '../../lib/core/waiting/bid.js';
import { clusterSlot } from '../../lib/stores/redis/client/cluster-slot.js';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { RedisCluster } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { loadScripts, scriptCalls } from '../support/script-calls.js';
import { redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const REQUEST = { waitMs: 60_000 };

const connect = ({ nodes }: RedisCluster, options: ClusterOptions = {}) =>
  new Cluster(
    nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
    options,
  );
const open = (cluster: RedisCluster, redisOptions: RedisOptions = {}) =>
  openLocks({ redis: () => connect(cluster, { redisOptions }) });

/** The server that a lock was on when the Cluster was made. */
const serverOf = ({ nodes }: RedisCluster, key: string, keyPrefix = ''): RedisServer =>
  nodes[Math.floor((clusterSlot(`${keyPrefix}lock:{${key}}`) * nodes.length) / 16_384)]!;

/** A key for each master. */
const keysFor = (cluster: RedisCluster, name: string): string[] =>
  cluster.nodes.map((node) => {
    for (let index = 0; ; index++) if (serverOf(cluster, `${name} ${index}`) === node) return `${name} ${index}`;
  });

async function sum(servers: readonly RedisServer[], count: (server: RedisServer) => Promise<number>): Promise<number> {
  return (await Promise.all(servers.map(count))).reduce((a, b) => a + b, 0);
}

/** The letters of the signs in the queue of a lock: of those that listen to it, and of those that do not. */
async function signs(server: RedisServer, key: string, keyPrefix = ''): Promise<string> {
  const all = (await server.command('ZRANGE', `${keyPrefix}lock:{${key}}:queue`, '-inf', '(0', 'BYSCORE')) as string[];
  const latest = new Map(all.reverse().map((sign) => [sign.slice(2), sign.charAt(0)])); // the later ones come first
  return [...latest.values()].sort().join('');
}

const untilSigns = (server: RedisServer, key: string, expected: string, keyPrefix?: string) =>
  until(async () => (await signs(server, key, keyPrefix)) === expected, { what: `the signs are ${expected}` });

async function shardChannels(server: RedisServer): Promise<number> {
  return ((await server.command('PUBSUB', 'SHARDCHANNELS', '*inbox:*')) as string[]).length;
}

async function plainChannels(server: RedisServer): Promise<number> {
  return ((await server.command('PUBSUB', 'CHANNELS', '*inbox:*')) as string[]).length;
}

/** How many messages of publish/subscribe the server has sent to other nodes. */
async function messagesOnTheBus(server: RedisServer): Promise<number> {
  const info = String(await server.command('CLUSTER', 'INFO'));
  return [...info.matchAll(/^cluster_stats_messages_publish(?:shard)?_sent:(\d+)/gm)].reduce(
    (total, [, count]) => total + Number(count),
    0,
  );
}

/** Acts again until that took less time than passes between two checks of a waiter: whose commands could not be told from others. */
async function betweenChecks<Result>(act: () => Promise<Result>): Promise<Result> {
  for (;;) {
    const startedAt = performance.now();
    const result = await act();
    if (performance.now() - startedAt < CHECK_MS * 0.9) return result; // one may come a little early, along with others
  }
}

describe('In a Cluster with sharded publish/subscribe', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await RedisCluster.start();
    await Promise.all(cluster.nodes.map(loadScripts));
  });
  afterAll(() => cluster.stop());

  const CLIENTS: [string, ClusterOptions][] = [
    ['default options', {}],
    ['a key prefix', { keyPrefix: 'app:' }],
    ['a key prefix with a hash tag', { keyPrefix: '{app}:' }],
    ['a key prefix for its nodes', { redisOptions: { keyPrefix: 'app:' } }],
    ['RESP2', { redisOptions: { protocol: 2 } }],
    ['a password', { redisOptions: { username: 'app', password: 'secret' } }],
  ];

  it.each(CLIENTS)(
    'locks are handed over on every node of a Cluster by two commands, and no node sends a message to others (%s) [G291]',
    async (name, options) => {
      for (const node of cluster.nodes) {
        await node.command('ACL', 'SETUSER', 'app', 'on', '>secret', 'allkeys', 'allchannels', 'allcommands');
      }
      const keyPrefix = options.keyPrefix ?? options.redisOptions?.keyPrefix ?? '';
      const [locks, others] = await Promise.all(
        [1, 2].map(() => openLocks({ redis: () => connect(cluster, options) })),
      );
      const before = await sum(cluster.nodes, messagesOnTheBus);
      const handOver = async (key: string) => {
        const node = serverOf(cluster, key, keyPrefix);
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
    const client = connect(cluster);
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
    await untilQueued(serverOf(cluster, 'election in a Cluster'), 'election in a Cluster', 2);
    await first.resign();
    const second = await leads();
    await services[leaders.indexOf(second)]!.onApplicationShutdown();
    const third = await leads();
    expect(new Set([first, second, third]).size).toBe(3);
    expect(terms).toEqual([...terms].sort((a, b) => a - b));
    expect(leaders.filter(({ isLeader }) => isLeader)).toEqual([third]);
  });

  it('a killed process that waits for a lock of a Cluster is passed over at once, and the next is granted it [G293]', async () => {
    const [key] = keysFor(cluster, 'killed');
    const node = serverOf(cluster, key!);
    const dead = await LockProcess.start({ clusterPort: cluster.nodes[1]!.port });
    const [holding, next] = [await open(cluster), await open(cluster)];
    const holder = await holding.acquire(key!);
    void dead.acquire(key!, REQUEST).catch(() => {});
    await untilSigns(node, key!, 'h');
    const waiting = next.acquire(key!, REQUEST);
    await untilSigns(node, key!, 'hh');
    await dead.kill();
    await until(async () => (await shardChannels(node)) === 1, { what: 'Redis knows that it is dead' });
    await holder.release();
    const owner = await ownerOn(node, key!);
    const lock = await waiting;
    expect(owner).toBe(lock.owner);
    await lock.release();
  });

  it.each(['ssubscribe', 'spublish'])(
    'a process without the right to %s waits by messages to all nodes, and shares queues with those that have it [G294]',
    async (command) => {
      for (const node of cluster.nodes) {
        await node.command('ACL', 'SETUSER', 'lesser', 'on', '>secret', 'allkeys', 'allchannels', 'allcommands');
      }
      await cluster.forbid(command, ['lesser']);
      const [lesser, full] = [await open(cluster, { username: 'lesser', password: 'secret' }), await open(cluster)];
      const [key] = keysFor(cluster, `without ${command}`);
      const node = serverOf(cluster, key!);
      const holder = await full.acquire(key!);
      const waiting = lesser.acquire(key!, REQUEST);
      await untilSigns(node, key!, 'u');
      await until(async () => (await sum(cluster.nodes, plainChannels)) === 1, { what: 'it listens to all nodes' });
      const another = (await open(cluster)).acquire(key!, REQUEST);
      await untilSigns(node, key!, 'hu');
      await holder.release();
      const first = await waiting;
      const again = full.acquire(key!, REQUEST);
      await until(async () => (await queued(node, key!)) === 2, { what: 'two wait' });
      await first.release(); // by a user who may or may not publish to a shard
      await Promise.all([another, again].map(async (each) => (await each).release())); // whichever looks first
      expect(await sum(cluster.nodes, plainChannels)).toBe(1);
    },
  );

  it('a lock that is taken by force is lost at once in processes of both kinds, if they listen [G295]', async () => {
    for (const node of cluster.nodes) {
      await node.command('ACL', 'SETUSER', 'plain', 'on', '>secret', 'allkeys', 'allchannels', 'allcommands');
    }
    await cluster.forbid('ssubscribe', ['plain']);
    const operator = await open(cluster);
    for (const locks of [await open(cluster, { username: 'plain', password: 'secret' }), await open(cluster)]) {
      const [key] = keysFor(cluster, 'taken');
      const before = await operator.acquire(key!);
      const waiting = locks.acquire(key!, { ...REQUEST, ttlMs: 600_000 });
      const channels = () =>
        sum(cluster.nodes, async (node) => (await plainChannels(node)) + (await shardChannels(node)));
      await until(async () => (await channels()) > 0, { what: 'it listens' });
      await before.release();
      const lock = await waiting;
      expect(await operator.forceRelease(key!)).toBe(true);
      await until(() => lock.signal.aborted, { what: 'it is lost' });
      await locks.onApplicationShutdown();
      await until(async () => (await channels()) === 0, { what: 'it does not listen any more' });
    }
  });

  it('a call that waits while the slot of its lock moves to another master gets the lock there, and listens there [G296]', async () => {
    const [key] = keysFor(cluster, 'moves');
    const [holding, waits] = [await open(cluster), await open(cluster)];
    const holder = await holding.acquire(key!, { ttlMs: 60_000 });
    const first = waits.acquire(key!, REQUEST);
    const slot = clusterSlot(`lock:{${key}}`);
    const [from, to] = cluster.nodes as [RedisServer, RedisServer];
    await untilSigns(from, key!, 'h');
    await moveSlot(cluster, slot, from, to);
    onTestFinished(() => moveSlot(cluster, slot, to, from));
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
});

/** Moves a slot with all its keys, as `redis-cli --cluster reshard` does. */
async function moveSlot({ nodes }: RedisCluster, slot: number, from: RedisServer, to: RedisServer): Promise<void> {
  const [fromId, toId] = await Promise.all(
    [from, to].map(async (node) => String(await node.command('CLUSTER', 'MYID'))),
  );
  await to.command('CLUSTER', 'SETSLOT', slot, 'IMPORTING', fromId!);
  await from.command('CLUSTER', 'SETSLOT', slot, 'MIGRATING', toId!);
  for (;;) {
    const keys = (await from.command('CLUSTER', 'GETKEYSINSLOT', slot, 100)) as string[];
    if (keys.length === 0) break;
    await from.command('MIGRATE', '127.0.0.1', to.port, '', 0, 5_000, 'KEYS', ...keys);
  }
  for (const node of [to, from, ...nodes.filter((each) => each !== from && each !== to)]) {
    await node.command('CLUSTER', 'SETSLOT', slot, 'NODE', toId!);
  }
}

/** Takes the lock again and again until the test has finished. */
function contend(locks: LockService, key: string): { turns: number } {
  const count = { turns: 0 };
  let isOver = false;
  const contending = (async () => {
    while (!isOver) {
      const isDone = locks
        .withLock(key, REQUEST, () => sleep(10))
        .then(
          () => true,
          () => false, // there is no master, or the test has ended
        );
      if (await isDone) count.turns++;
      else await sleep(20);
    }
  })();
  onTestFinished(async () => {
    isOver = true;
    await contending;
  });
  return count;
}

describe('After the failover of a master of a Cluster', () => {
  const isMaster = async (node: RedisServer) => String(await node.command('ROLE')).startsWith('master');

  it('a call that waited before a failover of the Cluster gets the lock from the new master, and listens there [G297]', async () => {
    const cluster = await RedisCluster.start();
    onTestFinished(() => cluster.stop());
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
});

describe('A process that loses a right to messages while it runs', () => {
  let cluster: RedisCluster;
  beforeAll(async () => {
    cluster = await RedisCluster.start();
  });
  afterAll(() => cluster.stop());

  const LOSSES: [string, string, string[]][] = [
    ['the right to publish', '+publish', ['-publish']],
    ['the right to its channels', '&lock:inbox:*', ['resetchannels']],
  ];
  const cases = LOSSES.flatMap(([what, ...rest]) => [
    [`${what} on one server`, 'server', ...rest] as const,
    [`${what} in a Cluster without sharded messages`, 'cluster', ...rest] as const,
  ]);

  it.each(cases)(
    'a process that loses %s while it runs warns once, asks from time to time, and listens again when it has it back [G532]',
    async (_what, kind, right, loss) => {
      const servers = kind === 'cluster' ? cluster.nodes : [await redisServer()];
      const key = `loses ${right}`;
      const server = kind === 'cluster' ? serverOf(cluster, key) : servers[0]!;
      const all = ['on', '>secret', 'allkeys', 'allchannels', 'allcommands', '-ssubscribe'];
      const change = (...rules: string[]) =>
        Promise.all(servers.map((each) => each.command('ACL', 'SETUSER', 'app', ...rules)));
      await change('reset', ...all);
      const login = { username: 'app', password: 'secret' };
      const openOne = () =>
        kind === 'cluster'
          ? open(cluster, login)
          : openLocks({ redis: { host: '127.0.0.1', port: server.port, ...login } });
      const [first, second] = [await openOne(), await openOne()];
      const warnings = [first, second].map((locks) => {
        const heard: string[] = [];
        locks.events$.subscribe((event) => {
          if (event.type === 'warning') heard.push(event.message);
        });
        return heard;
      });
      const wait = async (waits: LockService, holding: LockService) => {
        const holder = await holding.acquire(key, REQUEST);
        const waiting = waits.acquire(key, REQUEST);
        await untilQueued(server, key, 1);
        await holder.release();
        await (await waiting).release();
      };
      // In turn: without messages, of two that want it all the time one may get it all the time, and never wait.
      const bothWait = async () => {
        await wait(first, second);
        await wait(second, first);
      };
      const bothWaitUntil = (condition: () => boolean | Promise<boolean>, what: string) =>
        until(async () => (await bothWait(), condition()), { what, timeoutMs: 30_000 });
      const listening = async () => (await sum(servers, plainChannels)) === 2;
      await bothWaitUntil(listening, 'both listen');
      await change(...loss);
      await bothWaitUntil(() => warnings.every(({ length }) => length > 0), 'both warn');
      for (const [warning] of warnings) expect(warning).toContain(`Give its user the right ${right} (ACL SETUSER)`);
      await until(async () => (await sum(servers, plainChannels)) === 0, { what: 'both have given up listening' });
      await bothWait(); // although they hear nothing of their turns
      await change(...all);
      await bothWaitUntil(listening, 'both listen again');
      expect(warnings.map(({ length }) => length)).toEqual([1, 1]);
    },
    90_000,
  );
});

it('a process whose connection for sharded messages hangs listens again on a new one [G298]', async () => {
  const cluster = await RedisCluster.start();
  onTestFinished(() => cluster.stop());
  const proxies = await Promise.all(cluster.nodes.map(({ port }) => TcpProxy.start(port)));
  onTestFinished(async () => void (await Promise.all(proxies.map((proxy) => proxy.stop()))));
  const natMap = Object.fromEntries(
    cluster.nodes.map(({ port }, index) => [`127.0.0.1:${port}`, { host: '127.0.0.1', port: proxies[index]!.port }]),
  );
  const [key] = keysFor(cluster, 'hangs');
  const [node] = cluster.nodes;
  const services = [await openLocks({ redis: () => connect(cluster, { natMap }) }), await open(cluster)];
  const counts = services.map((locks) => contend(locks, key!));
  await until(async () => (await shardChannels(node!)) === 2, { what: 'both listen' });
  await until(() => counts.every(({ turns }) => turns > 5), { what: 'both have turns' });
  const made = proxies[0]!.made;
  proxies[0]!.muteSubscriptions();
  await until(() => proxies[0]!.made > made, { what: 'it has made another connection' });
  const before = counts.map(({ turns }) => turns);
  await until(() => counts.every(({ turns }, index) => turns > before[index]! + 10), { what: 'both have turns again' });
  await until(async () => (await signs(node!, key!)).includes('h'), { what: 'they listen' });
});
