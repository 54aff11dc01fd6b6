import { Cluster, type RedisOptions } from 'ioredis';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { freshKey } from '../support/claims.js';
import { keysFor } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { ownerIn } from '../support/stored.js';
import { until } from '../support/until.js';

/** For waits that end with an answer. */
const PATIENTLY = { count: 1, timeoutMs: 10_000 };
/** For waits without success. */
const BRIEFLY = { count: 1, timeoutMs: 300 };

let cluster: RedisCluster;
let replica: RedisServer;
beforeAll(async () => {
  cluster = await RedisCluster.start();
  replica = await cluster.addReplica();
  return () => cluster.stop();
});

describe('waitForReplicas in a Cluster', () => {
  it('waitForReplicas works in a Cluster of node-redis whose keys have a prefix [G889]', async () => {
    const rootNodes = cluster.nodes.map(({ url }) => ({ url }));
    const redis = { rootNodes, keyPrefix: 'app:' };
    const locks = await openLocks({ redis, commandTimeoutMs: 10_000, waitForReplicas: PATIENTLY });
    const { key, owner } = await locks.acquire(someKey());
    await replica.command('READONLY');
    expect(ownerIn(await replica.command('GET', `app:lock:{${key}}`))).toBe(owner);
  });

  it('works with clients that ask for a database, although a Cluster has only one', async () => {
    const redis = client({ db: 1 });
    const locks = await openLocks({ redis, commandTimeoutMs: 10_000, waitForReplicas: PATIENTLY });
    await locks.withLock(someKey(), () => {});
    const { findings } = await locks.diagnose();
    expect(findings.map(({ code }) => code)).not.toContain('wrong-database');
  });

  it('a lock with waitForReplicas in a Cluster survives the failover to the replica that acknowledged it [G73]', async () => {
    const [locks, brief] = [await open(PATIENTLY), await open(BRIEFLY)];
    const lock = await locks.acquire(someKey());
    await cluster.nodes[0]!.kill();
    await replica.command('CLUSTER', 'FAILOVER', 'TAKEOVER');
    const others = await openLocks({ redis: client() });
    const answer = await until(
      () =>
        others.tryAcquire(lock.key).then(
          (acquired) => ({ acquired }),
          () => undefined,
        ),
      { what: 'the new master serves' },
    );
    expect(answer.acquired).toBeNull();
    // It has no replica of its own.
    const refusal = () =>
      brief.acquire(someKey()).then(
        () => 'granted',
        ({ message }: Error) => message,
      );
    await until(async () => (await refusal()).includes(`127.0.0.1:${replica.port}: 0 of 1 replicas`), {
      what: 'its client asks the new master, which is refused',
    });
  });

  /** A key of a lock on the master with the replica. */
  const someKey = () => keysFor(cluster, freshKey())[0]!;

  function open(waitForReplicas: { count: number; timeoutMs: number }): Promise<LockService> {
    return openLocks({ redis: client(), commandTimeoutMs: 10_000, waitForReplicas });
  }

  function client(redisOptions: RedisOptions = {}): Cluster {
    const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
    const made = new Cluster([...nodes, { host: '127.0.0.1', port: replica.port }], {
      keyPrefix: 'app:',
      redisOptions,
    });
    onTestFinished(() => made.disconnect());
    return made;
  }
});
