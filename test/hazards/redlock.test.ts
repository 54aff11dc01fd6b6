import { setTimeout as sleep } from 'node:timers/promises';
import type { Redis } from 'ioredis';
import { describe, expect, it } from 'vitest';
import { LockUnavailableError } from '../../lib/index.js';
import { tryMajority } from '../support/naive.js';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { clientOf, freeOn, ownersOf, proxyTo, redisServers } from '../support/stage.js';
import { shardOf, votedOn } from '../support/stored.js';
import type { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';
import { FencedStore } from './fenced-store.js';

const FORGOTTEN_TTL_MS = 2_500;

describe('H11: a node of a Redlock restarts without its keys', () => {
  it('a naive Redlock lets a node that restarted empty vote at once, and there are two holders', async () => {
    const nodes = await redisServers(5);
    const clients = nodes.map((node) => clientOf(node));
    for (const client of clients.slice(3)) await client.set('lock', 'somebody who gives up');
    expect(await tryMajority(clients, 'lock', 'A', 60_000)).toBe(true);
    for (const client of clients.slice(3)) await client.del('lock');
    await nodes[2]!.kill();
    await nodes[2]!.restart();
    expect(await tryMajority(clients, 'lock', 'B', 60_000)).toBe(true); // while A is at work
  });

  it('this library does not count the vote of a node that restarted empty until all that it may have forgotten has ended [G93]', async () => {
    const nodes = await redisServers(5);
    const redlock = nodes.map(({ url }) => url);
    const options = { ttlMs: FORGOTTEN_TTL_MS, commandTimeoutMs: 500 };
    const a = await openLocks({ redlock, ...options });
    const b = await openLocks({ redlock, ...options });
    await a.withLock('scripts are loaded', () => {});
    await votedOn(nodes, 'scripts are loaded');
    await freeOn(nodes, 'scripts are loaded');
    for (const node of nodes.slice(3)) {
      await node.command('SET', 'lock:{key}', 'somebody who gives up', 'PX', 60_000);
      await node.resetCalls();
    }
    const lock = await a.acquire('key', { watchdog: false });
    for (const node of nodes.slice(3)) {
      await until(async () => ((await node.calls()).evalsha ?? 0) > 0, { what: 'it has refused its vote' });
      await node.command('DEL', 'lock:{key}');
    }
    await nodes[2]!.kill();
    await nodes[2]!.restart();
    expect(await ownersOf(nodes, 'key')).toEqual([lock.owner, lock.owner, null, null, null]);

    for (const node of nodes.slice(0, 2)) node.pause();
    const refusals: LockUnavailableError[] = [];
    const acquired = await until(
      () =>
        b.tryAcquire('key').catch((error: unknown) => {
          if (!(error instanceof LockUnavailableError)) throw error;
          refusals.push(error);
          return null;
        }),
      { what: 'B has the lock' },
    );
    expect(lock.isHeld).toBe(false);
    expect(acquired.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(refusals.at(-1)!.message).toContain(`127.0.0.1:${nodes[2]!.port}: it votes in `);
    for (const node of nodes.slice(0, 2)) node.resume();
  });
});

/** The effect of a clock that jumps ahead: the lease ends on this node, and on no other. */
async function jumpAhead(node: RedisServer, name: string): Promise<void> {
  await node.command('PEXPIRE', name, 1);
  await until(async () => (await node.command('EXISTS', name)) === 0, { what: 'the lease is over on the node' });
}

describe('H12: the clock of a Redlock node jumps ahead', () => {
  it("a naive Redlock whose node's clock jumps has two holders that nothing distinguishes, and the late write of the first wins", async () => {
    const nodes = await redisServers(5);
    const ofB = nodes.map((node) => clientOf(node));
    const nowhere = () => clientOf({ port: 1 }, { retryStrategy: () => null });
    const ofA = [...ofB.slice(0, 3), nowhere(), nowhere()];
    expect(await tryMajority(ofA, 'lock', 'A', 60_000)).toBe(true);
    await jumpAhead(nodes[2]!, 'lock');
    expect(await tryMajority(ofB, 'lock', 'B', 60_000)).toBe(true);
    let stock = 'as B sold it';
    stock = 'as A saw it';
    expect(stock).toBe('as A saw it');
  });

  it("this library may have two holders when a node's clock jumps, but the resource refuses the first, whose next extension finds the loss [G161]", async () => {
    const nodes = await redisServers(5);
    const waysOfA = await Promise.all(nodes.slice(3).map(proxyTo));
    for (const way of waysOfA) way.refuse();
    const stock = new FencedStore();
    const redlock = [...nodes.slice(0, 3), ...waysOfA].map(({ url }) => url);
    const options = { ttlMs: 30_000, commandTimeoutMs: 1_000, watchdog: false };
    const a = await openLocks({ redlock, ...options });
    const b = await openLocks({ redlock: nodes.map(({ url }) => url), ...options });

    const lockOfA = await a.acquire('key');
    expect(stock.write('as A counted it', lockOfA.fencingToken)).toBe(true);
    expect(await b.tryAcquire('key')).toBeNull();
    await freeOn(nodes.slice(3), 'key');
    await jumpAhead(nodes[2]!, 'lock:{key}');
    const lockOfB = await b.acquire('key', { waitMs: 0 });
    expect(await ownersOf(nodes, 'key')).toEqual([...Array(2).fill(lockOfA.owner), ...Array(3).fill(lockOfB.owner)]);

    expect(lockOfA.isHeld).toBe(true); // as far as A can know
    expect(stock.write('as B sold it', lockOfB.fencingToken)).toBe(true);
    expect(stock.write('as A saw it', lockOfA.fencingToken)).toBe(false);

    for (const way of waysOfA) await way.accept();
    const reason = await until(() => lockOfA.extend().catch((error: { reason?: string }) => error.reason), {
      what: 'the extension reaches a majority',
    });
    expect(reason).toBe('stolen');
    expect(lockOfA.signal.aborted).toBe(true);
    expect(await lockOfB.release()).toBe(true);
  });
});

const LONG_TTL_MS = 60_000;

/** The connections of each of three clients to each of three nodes. */
function waysTo(nodes: readonly RedisServer[]): Promise<TcpProxy[][]> {
  return Promise.all([0, 1, 2].map(() => Promise.all(nodes.map(proxyTo))));
}

/** Makes all three ask at once: client 0 reaches node 0 first, client 1 node 1, and client 2 node 2. */
async function splitVotes<T>(
  nodes: readonly RedisServer[],
  ways: readonly TcpProxy[][],
  name: string,
  ask: (client: number) => Promise<T>,
): Promise<Promise<T>[]> {
  const slow = ways.flatMap((row, client) => row.filter((_, node) => node !== client));
  for (const way of slow) way.hold();
  const asking = ways.map((_, client) => ask(client));
  const haveVoted = async () => (await Promise.all(nodes.map((node) => node.command('EXISTS', name)))).every(Boolean);
  await until(haveVoted, { what: 'each node has voted for another client' });
  for (const way of slow) way.release();
  return asking;
}

describe('H13: three clients win one of three nodes each', () => {
  it('a naive Redlock keeps the minority of a split vote, and nobody wins, now or later', async () => {
    const nodes = await redisServers(3);
    const ways = await waysTo(nodes);
    const clients = ways.map((row) => row.map((way) => clientOf(way)));
    await Promise.all(clients.flat().map((client) => client.ping()));

    const lock = (client: number) => tryMajority(clients[client]!, 'lock', `client ${client}`, LONG_TTL_MS);
    expect(await Promise.all(await splitVotes(nodes, ways, 'lock', lock))).toEqual([false, false, false]);
    expect(await Promise.all([0, 1, 2].map(lock))).toEqual([false, false, false]);
    const values = await Promise.all(nodes.map((node) => node.command('GET', 'lock')));
    expect(values).toEqual(['client 0', 'client 1', 'client 2']); // for all of the ttl
  });

  it('this library keeps no minority of a split vote, and each contender wins in turn, long before the ttl has passed [G162]', async () => {
    const nodes = await redisServers(3);
    const ways = await waysTo(nodes);
    const services = await Promise.all(
      ways.map((row) => openLocks({ redlock: row.map(({ url }) => url), ttlMs: LONG_TTL_MS, commandTimeoutMs: 5_000 })),
    );
    for (const locks of services) await locks.withLock('scripts are loaded', () => {});
    const owners = new Set<string>();
    const work = (client: number) =>
      services[client]!.withLock('key', { ttlMs: LONG_TTL_MS, waitMs: 10_000 }, async (lock) => {
        const held = (await ownersOf(nodes, 'key')).filter((owner) => owner === lock.owner);
        expect(held.length).toBeGreaterThanOrEqual(2);
        owners.add(lock.owner);
      });
    await Promise.all(await splitVotes(nodes, ways, 'lock:{key}', work));
    expect(owners.size).toBe(3);
    await freeOn(nodes, 'key');
  });
});

/** Longer than a test may take: a call that waits for a hanging node does not end. */
const NEVER_MS = 60_000;

/** Waits for nodes that hang: they grant the lock late, and then continue. */
async function grantLate(nodes: readonly RedisServer[], counters: readonly number[]): Promise<void> {
  const haveGranted = async () => (await countersOn(nodes)).every((counter, node) => counter > counters[node]!);
  await until(haveGranted, { what: 'the nodes work off what they were sent' });
}

function countersOn(nodes: readonly RedisServer[]): Promise<number[]> {
  return Promise.all(nodes.map(async (node) => Number(await node.command('GET', shardOf('key')))));
}

describe('H14: nodes of a Redlock hang', () => {
  it('a naive Redlock waits for the one node of five that does not answer', async () => {
    const nodes = await redisServers(5);
    const clients = nodes.map((node) => clientOf(node));
    await Promise.all(clients.map((client) => client.ping()));
    nodes[4]!.pause();

    let decided = false;
    const locking = tryMajority(clients, 'lock', 'A', NEVER_MS).finally(() => (decided = true));
    const granted = async () => Promise.all(nodes.slice(0, 4).map((node) => node.command('EXISTS', 'lock')));
    await until(async () => (await granted()).every(Boolean), { what: 'four of five have granted it' });
    expect(decided).toBe(false);
    nodes[4]!.resume();
    expect(await locking).toBe(true);
  });

  it('this library does not wait for two of five Redlock nodes that hang [G163]', async () => {
    const nodes = await redisServers(5);
    // Clients of the application, with ioredis' defaults: clients of this library would give up such a connection after
    // 5 s.
    const redlock = nodes.map((node) => clientOf(node));
    const locks = await openLocks({ redlock, commandTimeoutMs: NEVER_MS, ttlMs: NEVER_MS });
    const warmUp = await locks.acquire('scripts are loaded', { ttlMs: NEVER_MS });
    await warmUp.extend();
    await warmUp.release();
    await freeOn(nodes, 'scripts are loaded');
    const hung = nodes.slice(0, 2);
    const counters = await countersOn(hung);
    for (const node of hung) node.pause();
    for (let turn = 0; turn < 20; turn++) {
      const lock = await locks.acquire('key', { ttlMs: NEVER_MS });
      await lock.extend();
      expect(await lock.release()).toBe(true);
    }
    for (const node of hung) node.resume();
    await grantLate(hung, counters);
    await freeOn(nodes, 'key');
  });

  it('this library names three of five nodes that hang, in bounded time, and leaves nothing there when they wake [G164]', async () => {
    const nodes = await redisServers(5);
    const locks = await openLocks({ redlock: nodes.map(({ url }) => url), commandTimeoutMs: 1_000, ttlMs: NEVER_MS });
    const lock = await locks.acquire('all have heard of the ttl', { ttlMs: NEVER_MS });
    await votedOn(nodes, 'all have heard of the ttl'); // a node that hears of the ttl after the release does not vote
    await lock.release();
    await freeOn(nodes, 'all have heard of the ttl');
    const hung = nodes.slice(1, 4);
    const counters = await countersOn(hung);
    for (const node of hung) node.pause();

    const error = await locks.acquire('key', { ttlMs: NEVER_MS, waitMs: NEVER_MS }).catch((reason: Error) => reason);
    const names = hung.map(({ port }) => `127.0.0.1:${port}`);
    expect(error).toMatchObject({ code: 'LOCK_UNAVAILABLE', causes: names.map((node) => ({ node })) });
    for (const name of names) expect((error as Error).message).toContain(name);

    for (const node of hung) node.resume();
    await grantLate(hung, counters);
    await freeOn(nodes, 'key');
    await until(() => locks.tryAcquire('key').catch(() => null), { what: 'it can be acquired' });
  });
});

const RESTORED_TTL_MS = 1_800;

/** A node that restarted votes when this and the longest ttl have passed. */
const BEYOND_THE_TTL_MS = 2_000;

async function upForLongEnough(...nodes: RedisServer[]): Promise<void> {
  const uptime = async (node: RedisServer) =>
    Number(/uptime_in_seconds:(\d+)/.exec(String(await node.command('INFO', 'server')))?.[1]);
  const enough = (RESTORED_TTL_MS + BEYOND_THE_TTL_MS) / 1_000 + 1;
  const areUp = async () => {
    await sleep(100);
    return Math.min(...(await Promise.all(nodes.map(uptime)))) > enough;
  };
  await until(areUp, { what: 'all nodes have been up for long enough' });
}

describe('H15: one node after another restarts without its keys', () => {
  it('a naive Redlock, which extends only where its key is, loses the majority bit by bit as nodes restart', async () => {
    const nodes = await redisServers(3);
    const clients = nodes.map((node) => clientOf(node));
    expect(await tryMajority(clients, 'lock', 'A', 60_000)).toBe(true);
    const extend = async () => {
      const votes = await Promise.all(clients.map((node) => node.pexpire('lock', 60_000)));
      return votes.filter((vote) => vote === 1).length >= 2;
    };
    await nodes[0]!.restart();
    expect(await extend()).toBe(true); // and node 0 remains without it
    await nodes[1]!.restart();
    expect(await extend()).toBe(false);
    expect(await tryMajority(clients, 'lock', 'B', 60_000)).toBe(true); // while A is at work
  });

  it('this library puts its key back where it is missing, and the lock outlives the restart of a majority [G165]', async () => {
    const nodes = await redisServers(3);
    const redlock = nodes.map(({ url }) => url);
    const options = { redlock, ttlMs: RESTORED_TTL_MS, commandTimeoutMs: 500 };
    const [a, b] = [await openLocks(options), await openLocks(options)];
    await upForLongEnough(...nodes);
    const lock = await a.acquire('key');
    for (const node of nodes.slice(0, 2)) {
      await upForLongEnough(...nodes); // as the operator of a Redlock waits before each restart
      await node.restart();
      const isBack = async () => {
        lock.assertHeld();
        return (await ownersOf(nodes, 'key')).every((owner) => owner === lock.owner);
      };
      await until(isBack, { what: 'all nodes have it again' });
      expect(await b.tryAcquire('key')).toBeNull();
    }
    expect(lock.isHeld).toBe(true);
    expect(await lock.release()).toBe(true);
  });
});

const SNAPSHOT_TTL_MS = 1_500;
/** Grants of A, after the snapshot. */
const TURNS = 3;

/** A counter on each node; the highest of a majority is the token. */
async function naiveToken(nodes: readonly Redis[]): Promise<number> {
  return Math.max(...(await Promise.all(nodes.map((node) => node.incr('lock:fence')))));
}

/** kill -9, and a start with the earlier `SAVE`. */
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
    expect(await tryMajority([first, second], 'lock', 'A', SNAPSHOT_TTL_MS)).toBe(true); // the third is not reached
    const tokenOfA = await naiveToken([first, second]);
    expect(stock.write('as A counted it', tokenOfA)).toBe(true);

    await restartOld(nodes[0]!);
    const isOver = async () => (await second.exists('lock')) === 0;
    await until(isOver, { what: 'the lease of A is over' });
    expect(await tryMajority([first, third], 'lock', 'B', SNAPSHOT_TTL_MS)).toBe(true); // the second is not reached
    const tokenOfB = await naiveToken([first, third]);
    expect(stock.write('as B sold it', tokenOfB)).toBe(true);
    expect(tokenOfB).toBe(tokenOfA);
    expect(stock.write('as A saw it', tokenOfA)).toBe(true);
  });

  it('this library gives the next holder a greater token than all tokens that a node with an older snapshot has forgotten [G179]', async () => {
    const nodes = await redisServers(3);
    const options = { redlock: nodes.map(({ url }) => url), ttlMs: SNAPSHOT_TTL_MS, commandTimeoutMs: 2_000 };
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
