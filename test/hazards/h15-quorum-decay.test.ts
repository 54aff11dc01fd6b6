import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { tryMajority } from '../support/naive.js';
import { clientOf, ownersOf, redisServers } from '../support/stage.js';

const TTL_MS = 1_800;

/** A node that restarted votes when this and the longest ttl have passed. */
const BEYOND_THE_TTL_MS = 2_000;

async function upForLongEnough(...nodes: RedisServer[]): Promise<void> {
  const uptime = async (node: RedisServer) =>
    Number(/uptime_in_seconds:(\d+)/.exec(String(await node.command('INFO', 'server')))?.[1]);
  const enough = (TTL_MS + BEYOND_THE_TTL_MS) / 1_000 + 1;
  await until(async () => Math.min(...(await Promise.all(nodes.map(uptime)))) > enough, {
    what: 'all nodes have been up for long enough',
  });
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
    expect(await extend()).toBe(true); // and node 0 stays without it
    await nodes[1]!.restart();
    expect(await extend()).toBe(false);
    expect(await tryMajority(clients, 'lock', 'B', 60_000)).toBe(true); // while A is at work
  });

  it('this library puts its key back where it is missing, and the lock outlives the restart of a majority [G165]', async () => {
    const nodes = await redisServers(3);
    const redlock = nodes.map(({ url }) => url);
    const options = { redlock, ttlMs: TTL_MS, commandTimeoutMs: 500 };
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
