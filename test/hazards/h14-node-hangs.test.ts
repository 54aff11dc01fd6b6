import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { tryMajority } from '../support/naive.js';
import { clientOf, freeOn, redisServers } from '../support/stage.js';
import { shardOf, votedOn } from '../support/stored.js';

/** Longer than a test may take: whoever waits for a node that hangs does not end. */
const NEVER_MS = 60_000;

/** Waits for nodes that hang: they grant the lock late, and so count on. */
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
    // Clients of the application, with ioredis' defaults: those of this library would give up such a connection after 5 s.
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
    await until(() => locks.tryAcquire('key').catch(() => null), { what: 'it can be had' });
  });
});
