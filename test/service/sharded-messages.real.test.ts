import { beforeAll, expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { keysFor, masterOf } from '../support/cluster-slots.js';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { queued, untilQueued } from '../support/queue.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { loadScripts } from '../support/script-calls.js';
import { redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';
import { warningsOf } from '../support/scene.js';
import { until } from '../support/until.js';
import { open, plainChannels, REQUEST, shardChannels, sum, untilSigns } from './cluster-messages.js';

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await RedisCluster.start();
  await Promise.all(cluster.nodes.map(loadScripts));
  return () => cluster.stop();
});

it('a killed process that waits for a lock of a Cluster is passed over at once, and the next is granted it [G293]', async () => {
  const [key] = keysFor(cluster, 'killed');
  const node = masterOf(cluster, `lock:{${key}}`);
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
    const node = masterOf(cluster, `lock:{${key}}`);
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
    await first.release(); // by a user with or without the right to publish to a shard
    await Promise.all([another, again].map(async (each) => (await each).release())); // whichever checks first
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

const LOSSES: [string, string, string[]][] = [
  ['the right to publish', '+publish', ['-publish']],
  ['the right to its channels', '&lock:inbox:*', ['resetchannels']],
];
const cases = LOSSES.flatMap(([what, ...rest]) => [
  [`${what} on one server`, 'server', ...rest] as const,
  [`${what} in a Cluster without sharded messages`, 'cluster', ...rest] as const,
]);

it.each(cases)(
  'a process that loses %s while it runs warns once, polls, and listens again when it has it back [G532]',
  async (_what, kind, right, loss) => {
    const servers = kind === 'cluster' ? cluster.nodes : [await redisServer()];
    const key = `loses ${right}`;
    const server = kind === 'cluster' ? masterOf(cluster, `lock:{${key}}`) : servers[0]!;
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
    const warnings = [first, second].map(warningsOf);
    const wait = async (waits: LockService, holding: LockService) => {
      const holder = await holding.acquire(key, REQUEST);
      const waiting = waits.acquire(key, REQUEST);
      await untilQueued(server, key, 1);
      await holder.release();
      await (await waiting).release();
    };
    // In turn: without messages, one of two calls that constantly want it may always get it, and never wait.
    const bothWait = async () => {
      await wait(first, second);
      await wait(second, first);
    };
    const bothWaitUntil = (condition: () => boolean | Promise<boolean>, what: string) =>
      until(async () => (await bothWait(), condition()), { what, timeoutMs: 30_000 });
    const listening = async () => (await sum(servers, plainChannels)) === 2;
    await bothWaitUntil(listening, 'both listen');
    const fallenBack = expect.stringContaining('Give its user the rights +ssubscribe +sunsubscribe') as string;
    for (const heard of warnings) expect(heard.splice(0)).toEqual(kind === 'cluster' ? [fallenBack] : []);
    await change(...loss);
    await bothWaitUntil(() => warnings.every(({ length }) => length > 0), 'both warn');
    for (const [warning] of warnings) expect(warning).toContain(`Give its user the right ${right} (ACL SETUSER)`);
    await until(async () => (await sum(servers, plainChannels)) === 0, { what: 'both have given up listening' });
    await bothWait(); // although they get no messages about their turns
    await change(...all);
    await bothWaitUntil(listening, 'both listen again');
    expect(warnings.map(({ length }) => length)).toEqual([1, 1]);
  },
  90_000,
);
