import { describe, expect, it } from 'vitest';
import { LockUnavailableError } from '../../lib/index.js';
import { openLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { tryMajority } from '../support/naive.js';
import { votedOn } from '../support/stored.js';
import { clientOf, freeOn, ownersOf, redisServers } from '../support/stage.js';

const TTL_MS = 2_500;

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
    const options = { ttlMs: TTL_MS, commandTimeoutMs: 500 };
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
