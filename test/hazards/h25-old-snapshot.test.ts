import type { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { FencedStore } from './fenced-store.js';
import { tryMajority } from '../support/naive.js';
import { clientOf, freeOn, redisServers } from '../support/stage.js';
import { shardOf } from '../support/stored.js';

const TTL_MS = 1_500;
/** Of A, after the snapshot. */
const TURNS = 3;

/** A counter on each node, and the highest of a majority as the token. */
async function naiveToken(nodes: readonly Redis[]): Promise<number> {
  return Math.max(...(await Promise.all(nodes.map((node) => node.incr('lock:fence')))));
}

/** kill -9, and a start with what `SAVE` wrote before. */
async function restartOld(node: RedisServer): Promise<void> {
  await node.kill();
  await node.restart();
}

describe('H25: a node of a Redlock restarts with an older snapshot', () => {
  it('a naive Redlock that keeps a node with an older snapshot from voting for a ttl gives one token to two holders', async () => {
    const nodes = await redisServers(3);
    const [first, second, third] = nodes.map((node) => clientOf(node)) as [Redis, Redis, Redis];
    const stock = new FencedStore();
    for (const node of [first, second, third]) await node.set('lock:fence', 40);
    await nodes[0]!.command('SAVE');
    expect(await tryMajority([first, second], 'lock', 'A', TTL_MS)).toBe(true); // the third is not reached
    const tokenOfA = await naiveToken([first, second]);
    expect(stock.write('as A counted it', tokenOfA)).toBe(true);

    await restartOld(nodes[0]!);
    const isOver = async () => (await second.exists('lock')) === 0;
    await until(isOver, { what: 'the lease of A is over' });
    expect(await tryMajority([first, third], 'lock', 'B', TTL_MS)).toBe(true); // the second is not reached
    const tokenOfB = await naiveToken([first, third]);
    expect(stock.write('as B sold it', tokenOfB)).toBe(true);
    expect(tokenOfB).toBe(tokenOfA);
    expect(stock.write('as A saw it', tokenOfA)).toBe(true);
  });

  it('this library gives the next holder a greater token than all whose counts a node with an older snapshot has forgotten [G179]', async () => {
    const nodes = await redisServers(3);
    const options = { redlock: nodes.map(({ url }) => url), ttlMs: TTL_MS, commandTimeoutMs: 2_000 };
    const [a, b] = [await openLocks(options), await openLocks(options)];
    const stock = new FencedStore();
    const refuse = (key: string, node: RedisServer) => node.command('SET', `lock:{${key}}`, 'another', 'PX', 60_000);
    const counters = () => Promise.all(nodes.map((node) => node.command('GET', shardOf('key'))));
    const { fencingToken } = await a.withLock('key', (lock) => lock);
    await until(async () => !(await counters()).includes(null), { what: 'all nodes have voted' });
    await freeOn(nodes, 'key');
    // Counters that differ by some microseconds would hide it.
    for (const node of nodes) await node.command('SET', shardOf('key'), fencingToken);
    await nodes[0]!.command('SAVE');

    await refuse('key', nodes[2]!);
    for (let turn = 1; turn < TURNS; turn++) await a.withLock('key', () => {});
    const lockOfA = await a.acquire('key', { watchdog: false });
    expect(stock.write('as A counted it', lockOfA.fencingToken)).toBe(true);
    await restartOld(nodes[0]!);
    await refuse('other', nodes[1]!);
    await until(() => b.tryAcquire('other').catch(() => null), { what: 'the node that restarted votes' });
    expect(lockOfA.isHeld).toBe(false);

    await refuse('key', nodes[1]!);
    await nodes[2]!.command('DEL', 'lock:{key}');
    const tokens: number[] = [];
    for (let turn = 0; turn < TURNS; turn++) tokens.push(await b.withLock('key', (lock) => lock.fencingToken));
    expect(tokens[0]).toBeGreaterThan(lockOfA.fencingToken);
    expect(tokens).toEqual([...new Set(tokens)].sort((one, other) => one - other));
    expect(stock.write('as B sold it', tokens[0]!)).toBe(true);
    expect(stock.write('as A saw it', lockOfA.fencingToken)).toBe(false);
  });
});
