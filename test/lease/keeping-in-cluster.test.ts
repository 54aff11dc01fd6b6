import { Cluster } from 'ioredis';
import { expect, it, onTestFinished } from 'vitest';
import type { LockEvent } from 'nest-redis-lock';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { until } from '../support/until.js';

it('the watchdog extends the locks of one node of a Cluster while another node does not answer', async () => {
  const cluster = await RedisCluster.start(3);
  onTestFinished(() => cluster.stop());
  // The others go on when they find that one is gone.
  for (const node of cluster.nodes) await node.command('CONFIG', 'SET', 'cluster-require-full-coverage', 'no');
  const client = new Cluster(cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })));
  onTestFinished(() => client.disconnect());
  const locks = await openLocks({ redis: client, ttlMs: 6_000, commandTimeoutMs: 1_500 });
  const failed: unknown[] = [];
  locks.events$.subscribe((event: LockEvent) => event.type === 'extension-failed' && failed.push(event.key));
  const [hung, ...well] = await Promise.all(['b', 'c', 'a'].map((key) => locks.acquire(key)));
  cluster.nodes[0]!.pause();
  await until(() => failed.includes(hung!.key), { what: 'an extension of the lock of the node that hangs has failed' });
  const deadlines = () => well.map((lock) => performance.now() + lock.remainingMs);
  const before = deadlines();
  await until(() => deadlines().every((deadline, index) => deadline > before[index]! + 50), {
    what: 'the locks of the other nodes have been extended once more',
  });
  expect(well.every((lock) => lock.isHeld)).toBe(true);
});
