import { Cluster } from 'ioredis';
import { expect, it } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { queued, subscribers } from '../support/queue.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';
import { redisCluster, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';

/** Two processes with ten lock services each, which are twenty processes for Redis. */
const [PROCESSES, SERVICES] = [2, 10];
const DEAD = PROCESSES * SERVICES;
const KEY = 'hot';
const REQUEST = { waitMs: 60_000 };
const TURNS = 10;

/** The store of the locks, and how processes and services reach it. */
interface Place {
  nodes: readonly RedisServer[];
  startProcess(): Promise<LockProcess>;
  open(): Promise<LockService>;
  /** Whether a release counts the listeners of a process. */
  areCounted: boolean;
}

const total = async (nodes: readonly RedisServer[], count: (node: RedisServer) => Promise<number>) =>
  (await Promise.all(nodes.map((node) => count(node).catch(() => 0)))).reduce((sum, one) => sum + one);

const expired = async (node: RedisServer) =>
  Number(/expired_keys:(\d+)/.exec(String(await node.command('INFO', 'stats')))![1]);

/** Takes the lock this many times, one after the other. */
async function takeTurns(locks: LockService): Promise<void> {
  for (let turn = 0; turn < TURNS; turn++) await locks.withLock(KEY, REQUEST, () => Promise.resolve());
}

/**
 * Twenty services wait for the first time, and two services behind them. Their processes are killed, and the holder
 * releases the lock.
 * @returns how many grants expired before both services had had all their turns
 */
async function grantsThatRunOut({ nodes, startProcess, open, areCounted }: Place): Promise<number> {
  const processes = await Promise.all(Array.from({ length: PROCESSES }, startProcess));
  const [holding, ...alive] = await Promise.all([open(), open(), open()]);
  const holder = await holding!.acquire(KEY);
  for (const each of processes) void each.waitInMany(KEY, SERVICES, REQUEST);
  const waiting = (count: number) => async () => (await total(nodes, (node) => queued(node, KEY))) === count;
  await until(waiting(DEAD), { what: 'all that will die wait' });
  const listening = (count: number) => async () => (await total(nodes, subscribers)) === count;
  await until(listening(DEAD), { what: 'they listen' });
  const signs = async (node: RedisServer) =>
    ((await node.command('ZRANGE', `lock:{${KEY}}:queue`, '-inf', '(0', 'BYSCORE')) as string[]).filter((sign) =>
      sign.startsWith('h'),
    ).length;
  if (areCounted) await until(async () => (await total(nodes, signs)) === DEAD, { what: 'they have reported it' });
  const turns = alive.map(takeTurns);
  await until(waiting(DEAD + 2), { what: 'two services wait behind them' });
  await Promise.all(processes.map((each) => each.kill()));
  await until(listening(2), { what: 'Redis knows that their connections are closed' });
  const before = await total(nodes, expired);
  await holder.release();
  await Promise.all(turns);
  return (await total(nodes, expired)) - before;
}

function placeIn({ nodes }: RedisCluster, areCounted: boolean): Place {
  const clusterPort = nodes[0]!.port;
  return {
    nodes,
    startProcess: () => LockProcess.start({ clusterPort }),
    open: () => openLocks({ redis: () => new Cluster([{ host: '127.0.0.1', port: clusterPort }]) }),
    areCounted,
  };
}

it('when twenty processes that wait for a lock are killed, two others continue at once, although they had never waited before [G271]', async () => {
  const server = await redisServer();
  const options = { redis: server.url };
  const place = {
    nodes: [server],
    startProcess: () => LockProcess.start(options),
    open: () => openLocks(options),
    areCounted: true,
  };
  expect(await grantsThatRunOut(place)).toBe(0);
});

it('when twenty processes that wait for a lock of a Cluster without sharded publish/subscribe are killed, two others continue after at most two expired grants [G272]', async () => {
  const cluster = await redisCluster();
  await cluster.forbid();
  expect(await grantsThatRunOut(placeIn(cluster, false))).toBeLessThanOrEqual(2);
});

it('when twenty processes that wait for a lock of a Cluster are killed, two others continue at once [G290]', async () => {
  const cluster = await redisCluster();
  expect(await grantsThatRunOut(placeIn(cluster, true))).toBe(0);
});
