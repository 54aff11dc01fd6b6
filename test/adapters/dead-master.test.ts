import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import { keysFor } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { redisCluster } from '../support/stage.js';
import { until } from '../support/until.js';

describe('A Cluster of node-redis', () => {
  it.each(['is killed', 'hangs'])(
    'one of whose masters %s before the start serves the locks of the others, and the locks of that master once its replica is promoted [G898]',
    async (how) => {
      const cluster = await redisCluster();
      const rootNodes = cluster.nodes.map(({ url }) => ({ url }));
      const [first, second, third] = keysFor(cluster, 'key') as [string, string, string];
      const replica = await cluster.addReplica();
      if (how === 'hangs') cluster.nodes[0]!.pause();
      else await cluster.nodes[0]!.kill();
      // The client finds a hanging connection only with its own setting.
      const defaults = { pingInterval: 500, socket: { socketTimeout: 2_000, reconnectStrategy: () => 200 } };
      const locks = await openLocks({
        redis: { rootNodes: [...rootNodes, { url: replica.url }], ...(how === 'hangs' && { defaults }) },
      });
      await served(() => locks.withLock(second, () => {}));
      await locks.withLock(third, () => {});
      await expect(locks.acquire(first)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      await locks.withLock(second, () => {});
      await replica.command('CLUSTER', 'FAILOVER', 'TAKEOVER');
      await served(() => locks.withLock(first, () => {}));
    },
  );
});

function served(use: () => Promise<unknown>): Promise<unknown> {
  const isServed = () =>
    use().then(
      () => true,
      () => sleep(200, false),
    );
  return until(isServed, { what: 'the lock is acquired', timeoutMs: 60_000 });
}
