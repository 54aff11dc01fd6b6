import { describe, expect, it, onTestFinished } from 'vitest';
import { clusterSlot } from '../../lib/stores/redis/client/cluster-slot.js';
import { freshKey } from '../support/claims.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { until } from '../support/until.js';

describe('A Cluster of node-redis', () => {
  it.each(['is killed', 'hangs'])(
    'one of whose masters %s before the start serves the locks of the others, and its own once its replica is promoted [G898]',
    async (how) => {
      const { cluster, rootNodes } = await started();
      const replica = await cluster.addReplica();
      if (how === 'hangs') cluster.nodes[0]!.pause();
      else await cluster.nodes[0]!.kill();
      // A connection to a server that hangs is found by its own setting.
      const defaults = { pingInterval: 500, socket: { socketTimeout: 2_000, reconnectStrategy: () => 200 } };
      const locks = await openLocks({
        redis: { rootNodes: [...rootNodes, { url: replica.url }], ...(how === 'hangs' && { defaults }) },
      });
      await served(() => locks.withLock(keyOf(1), () => {}));
      await locks.withLock(keyOf(2), () => {});
      await expect(locks.acquire(keyOf(0))).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
      await locks.withLock(keyOf(1), () => {});
      await replica.command('CLUSTER', 'FAILOVER', 'TAKEOVER');
      await served(() => locks.withLock(keyOf(0), () => {}));
    },
  );
});

async function started() {
  const cluster = await RedisCluster.start();
  onTestFinished(() => cluster.stop());
  return { cluster, rootNodes: cluster.nodes.map(({ url }) => ({ url })) };
}

function served(use: () => Promise<unknown>): Promise<unknown> {
  const isServed = () =>
    use().then(
      () => true,
      () => false,
    );
  return until(isServed, { what: 'the lock is had', timeoutMs: 60_000 });
}

/** A key whose slot is one of this master's. */
function keyOf(master: number): string {
  for (;;) {
    const key = freshKey();
    if (Math.floor((clusterSlot(`{${key}}`) * 3) / 16_384) === master) return key;
  }
}
