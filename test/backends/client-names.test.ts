import { Cluster, Redis } from 'ioredis';
import { beforeEach, describe, expect, it, onTestFinished } from 'vitest';
import type { LockService } from '../../lib/core/service/lock.service.js';
import { openLocks } from '../support/open-locks.js';
import { replicaOf } from '../support/replica-of.js';
import { untilSubscribers } from '../support/queue.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

const OURS = 'nest-redis-lock:default';

let server: RedisServer;
beforeEach(async () => {
  server = await RedisServer.start();
  onTestFinished(() => server.stop()); // behind the services, which close before
});

/** A call waits for a lock that another process holds, so it listens for its turn. */
async function wait(locks: LockService): Promise<void> {
  await server.command('SET', 'lock:{key}', 'another', 'PX', 60_000);
  locks.acquire('key').catch(() => {});
}

/** What a server calls its clients, but the one that asks; those that subscribe have an asterisk. */
async function names(of = server): Promise<string[]> {
  const self = `id=${String(await of.command('CLIENT', 'ID'))} `;
  const clients = String(await of.command('CLIENT', 'LIST'))
    .trim()
    .split('\n');
  return clients
    .filter((client) => !client.startsWith(self))
    .map((client) => / name=(\S*) /.exec(client)![1]! + (/ sub=1 /.test(client) ? '*' : ''))
    .sort();
}

/** The name of a new connection comes a moment after it. */
async function named(...expected: string[]): Promise<void> {
  let last: string[] = [];
  const asExpected = async () => {
    last = await names();
    return JSON.stringify(last) === JSON.stringify(expected);
  };
  await until(asExpected, { what: `the clients are called ${expected.join()}` }).catch(() => {});
  expect(last).toEqual(expected);
}

describe('CLIENT LIST', () => {
  it.each([
    ['a URL', () => server.url],
    ['options', () => ({ host: '127.0.0.1', port: server.port })],
  ])('CLIENT LIST names the connections made from %s after the registration [G70]', async (_source, source) => {
    await wait(await openLocks({ redis: source() }));
    await named(OURS, `${OURS}*`);
  });

  it('shows a registration whose name a client must not have by one that it may', async () => {
    await openLocks({ redis: server.url }, 'the märket\n2');
    await named('nest-redis-lock:the_m_rket_2');
  });

  it.each([
    ['a URL', () => `${server.url}?connectionName=theirs`],
    ['options', () => ({ host: '127.0.0.1', port: server.port, connectionName: 'theirs' })],
    ['a function', () => () => new Redis(server.port, '127.0.0.1', { connectionName: 'theirs' })],
  ])('shows the name that the user gave in %s', async (_source, source) => {
    await wait(await openLocks({ redis: source() }));
    await named('theirs', 'theirs*');
  });

  it('shows a client of the application under its own name, and what is made after its example under ours', async () => {
    const client = new Redis(server.port, '127.0.0.1', { connectionName: 'theirs' });
    onTestFinished(() => client.disconnect());
    const locks = await openLocks({ redis: client });
    await wait(locks);
    await named(`${OURS}*`, 'theirs');
    expect(client.options.connectionName).toBe('theirs');
  });

  it('shows the connection on which replicas are waited for', async () => {
    await replicaOf(server);
    const before = await names();
    const locks = await openLocks({ redis: server.url, waitForReplicas: { count: 1, timeoutMs: 5_000 } });
    await locks.acquire('key');
    await named(...[...before, OURS, OURS].sort());
  });

  it('shows the connection on which the doctor tries whether it may subscribe', async () => {
    const locks = await openLocks({ redis: server.url });
    await server.resetCalls();
    await locks.diagnose();
    expect((await server.calls())['client|setname']).toBe(1);
  });

  it.each([
    ['', OURS],
    [' without sharded publish/subscribe', `ioredis-cluster(subscriber):${OURS}*`],
  ])('shows what listens in a Cluster%s', async (without, name) => {
    const cluster = await RedisCluster.start();
    onTestFinished(() => cluster.stop());
    if (without) await cluster.forbid();
    const nodes = cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port }));
    await (await openLocks({ redis: () => new Cluster(nodes) })).acquire('key');
    const waiting = (await openLocks({ redis: () => new Cluster(nodes) })).acquire('key');
    waiting.catch(() => {});
    const all = async () => (await Promise.all(cluster.nodes.map(names))).flat();
    await until(async () => (await all()).includes(name), {
      what: 'what listens has the name',
    });
  });

  it('is not needed: where names are refused locks are taken and handed over', async () => {
    await server.command('ACL', 'SETUSER', 'plain', 'on', 'nopass', '~*', '&*', '+@all', '-client');
    const redis = `redis://plain:any@127.0.0.1:${server.port}`;
    const [locks, others] = [await openLocks({ redis }), await openLocks({ redis })];
    const holder = await locks.acquire('key');
    const waiting = others.acquire('key');
    await untilSubscribers(server, 1);
    await holder.release();
    expect((await waiting).isHeld).toBe(true);
    await named('', '', '*');
  });
});
