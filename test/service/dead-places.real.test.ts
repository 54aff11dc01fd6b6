import { Cluster } from 'ioredis';
import { expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { queued, subscribers } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { redisCluster, redisServer } from '../support/stage.js';
import { until } from '../support/until.js';
import { signs, sum } from './cluster-messages.js';

/** A process with twenty lock services, which are twenty processes for Redis. */
const DEAD = 20;
const KEY = 'hot';
const REQUEST = { waitMs: 60_000 };
const TURNS = 10;

const total = (nodes: readonly RedisServer[], count: (node: RedisServer) => Promise<number>) =>
  sum(nodes, (node) => count(node).catch(() => 0));

const expired = async (node: RedisServer) =>
  Number(/expired_keys:(\d+)/.exec(String(await node.command('INFO', 'stats')))![1]);

/**
 * Twenty services wait for the first time, and two services behind them. Their process is killed, and the holder
 * releases the lock.
 * @param areCounted whether a release counts the listeners of a process
 * @returns how many grants expired before both services had had all their turns
 */
async function grantsThatRunOut(nodes: readonly RedisServer[], areCounted = true): Promise<number> {
  const { port, url } = nodes[0]!;
  const isCluster = nodes.length > 1;
  const dying = await LockProcess.start(isCluster ? { clusterPort: port } : { redis: url });
  const redis = isCluster ? () => new Cluster([{ host: '127.0.0.1', port }]) : url;
  const [holding, ...alive] = await Promise.all([1, 2, 3].map(() => openLocks({ redis, commandTimeoutMs: 20_000 })));
  const holder = await holding!.acquire(KEY);
  void dying.waitInMany(KEY, DEAD, REQUEST);
  const waiting = (count: number) => async () => (await total(nodes, (node) => queued(node, KEY))) === count;
  await until(waiting(DEAD), { what: 'all that will die wait' });
  const listening = (count: number) => async () => (await total(nodes, subscribers)) === count;
  await until(listening(DEAD), { what: 'they listen' });
  const heard = async (node: RedisServer) => (await signs(node, KEY)).replaceAll('u', '').length;
  const turns = alive.map(async (locks) => {
    for (let turn = 0; turn < TURNS; turn++) await locks.withLock(KEY, REQUEST, () => Promise.resolve());
  });
  await until(waiting(DEAD + 2), { what: 'two services wait behind them' });
  await until(listening(DEAD + 2), { what: 'all listen' });
  // A process on a busy machine can be too late to hear itself, and then others do not rely on it, until it does again.
  if (areCounted) await until(async () => (await total(nodes, heard)) === DEAD + 2, { what: 'all have reported it' });
  await dying.kill();
  await until(listening(2), { what: 'Redis knows that their connections are closed' });
  const before = await total(nodes, expired);
  await holder.release();
  await Promise.all(turns);
  return (await total(nodes, expired)) - before;
}

it('when twenty processes that wait for a lock are killed, two others continue at once, although they had never waited before [G271]', async () => {
  expect(await grantsThatRunOut([await redisServer()])).toBe(0);
});

it('when twenty processes that wait for a lock of a Cluster without sharded publish/subscribe are killed, two others continue after at most two expired grants [G272]', async () => {
  const cluster = await redisCluster();
  await cluster.forbid();
  expect(await grantsThatRunOut(cluster.nodes, false)).toBeLessThanOrEqual(2);
});

it('when twenty processes that wait for a lock of a Cluster are killed, two others continue at once [G290]', async () => {
  expect(await grantsThatRunOut((await redisCluster()).nodes)).toBe(0);
});
