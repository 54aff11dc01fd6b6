import { Cluster } from 'ioredis';
import { it, onTestFinished } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import { RedisCluster } from '../support/redis-cluster.js';
import { until } from '../support/until.js';
import { acquireOn, claimOn, connected, extendOn, freshKey } from '../support/claims.js';

/** Longer than a test may take: what waits for it fails. */
const NEVER_MS = 60_000;

async function use(options: RedisLockModuleOptions): Promise<LockBackend> {
  const backend = await connected(options);
  onTestFinished(() => backend.close());
  return backend;
}

it('a Cluster that is gone is named with an address', async () => {
  const cluster = await RedisCluster.start();
  onTestFinished(() => cluster.stop());
  const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
  const clients = [new Cluster(nodes), new Cluster(nodes).on('error', () => {})] as const;
  onTestFinished(() => clients[1].disconnect());
  const backends = [
    await use({ redis: () => clients[0], commandTimeoutMs: NEVER_MS }),
    await use({ redis: clients[1], commandTimeoutMs: 500 }), // it keeps what is sent while it reconnects
  ];
  // A node that was never asked for anything is not known to be gone.
  await Promise.all(clients.flatMap((client) => client.nodes('master').map((node) => node.ping())));
  await cluster.stop();
  await until(() => clients.every(({ status }) => status !== 'ready'), { what: 'both know of the break' });
  for (const backend of backends) {
    for (const operate of [extendOn, acquireOn]) {
      const says = async () => {
        const outcome = await operate(backend, claimOn(freshKey()));
        const causes = outcome.status === 'unavailable' ? outcome.causes : [];
        return causes.some(({ problem }) => /^not connected \(\w+\): 127\.0\.0\.1:\d+: \w/.test(problem));
      };
      await until(says, { what: 'an extension, or an attempt, says why', timeoutMs: 30_000 });
    }
  }
});
