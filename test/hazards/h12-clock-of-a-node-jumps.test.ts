import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { FencedStore } from './fenced-store.js';
import { tryMajority } from '../support/naive.js';
import { clientOf, freeOn, ownersOf, proxyTo, redisServers } from '../support/stage.js';

/** What a clock that jumps ahead does: the lease is over on this node, and on no other. */
async function jumpAhead(node: RedisServer, name: string): Promise<void> {
  await node.command('PEXPIRE', name, 1);
  await until(async () => (await node.command('EXISTS', name)) === 0, { what: 'the lease is over on the node' });
}

describe('H12: the clock of a Redlock node jumps ahead', () => {
  it("a naive Redlock whose node's clock jumps has two holders that nothing tells apart, and the late write of the first wins", async () => {
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
