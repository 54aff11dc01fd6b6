import { Cluster, Redis } from 'ioredis';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { untilSubscribers } from '../support/queue.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';
import { replicaOf } from '../support/replica-of.js';
import { until } from '../support/until.js';
import { named, namesOn } from './names-of-clients.js';

const OURS = 'nest-redis-lock:default';
/** Time enough on a machine that does other work. */
const COMMAND_MS = 20_000;

let server: RedisServer;
beforeEach(async () => {
  server = await RedisServer.start();
  onTestFinished(() => server.stop()); // behind the services, which close before
});

describe('CLIENT LIST', () => {
  it('shows the connection on which replicas are waited for', async () => {
    await replicaOf(server);
    const before = await namesOn(server);
    const locks = await openLocks({
      redis: server.url,
      ttlMs: 60_000,
      waitForReplicas: { count: 1, timeoutMs: 20_000 },
      commandTimeoutMs: COMMAND_MS,
    });
    await locks.acquire('key');
    await named(server, ...[...before, OURS, OURS].sort());
  });

  it.each([
    ['', OURS],
    [' without sharded publish/subscribe', `ioredis-cluster(subscriber):${OURS}*`],
  ])('shows what listens in a Cluster%s', async (without, name) => {
    const cluster = await RedisCluster.start();
    onTestFinished(() => cluster.stop());
    if (without) await cluster.forbid();
    const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
    const open = () => openLocks({ redis: () => new Cluster(nodes), commandTimeoutMs: COMMAND_MS });
    await (await open()).acquire('key');
    const waiting = (await open()).acquire('key');
    waiting.catch(() => {});
    const all = async () => (await Promise.all(cluster.nodes.map(namesOn))).flat();
    await until(async () => (await all()).includes(name), {
      what: 'what listens has the name',
    });
  });

  it.each([
    ['ioredis', (url: string) => () => new Redis(url, { connectionName: OURS }), ['', '', '*']],
    ['node-redis', (url: string) => ({ url }), [OURS, OURS, `${OURS}*`]], // said in HELLO, which is no such command
  ])('is not needed: where names are refused locks are taken and handed over by %s', async (_, sourceOf, names) => {
    await server.command('ACL', 'SETUSER', 'plain', 'on', 'nopass', '~*', '&*', '+@all', '-client');
    const url = `redis://plain:any@127.0.0.1:${server.port}`;
    const open = () => openLocks({ redis: sourceOf(url), commandTimeoutMs: COMMAND_MS });
    const [locks, others] = [await open(), await open()];
    const holder = await locks.acquire('key');
    const waiting = others.acquire('key');
    await untilSubscribers(server, 1);
    await holder.release();
    expect((await waiting).isHeld).toBe(true);
    await named(server, ...names);
  });
});
