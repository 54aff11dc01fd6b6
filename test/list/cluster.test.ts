import { beforeAll, expect, it } from 'vitest';
import type { LockUnavailableError } from 'nest-redis-lock';
import { masterOf } from '../support/cluster-slots.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { clientOfCluster } from '../support/stage.js';
import { until } from '../support/until.js';

let cluster: RedisCluster;
beforeAll(async () => {
  cluster = await RedisCluster.start();
  return () => cluster.stop();
});

const open = ({ keyPrefix, commandTimeoutMs = 20_000 }: { keyPrefix?: string; commandTimeoutMs?: number } = {}) =>
  openLocks({
    redis: () => clientOfCluster(cluster, { keyPrefix }),
    ttlMs: 60_000,
    commandTimeoutMs,
  });

/** Keys that give each master some locks. */
const KEYS = Array.from({ length: 30 }, (_, index) => `order:${index}`).sort();

it('a list of a Cluster has the locks of all masters, with those that wait, whatever the key prefix of its client [G431]', async () => {
  const [locks, prefixed] = await Promise.all([open(), open({ keyPrefix: 'app*:' })]);
  expect(new Set(KEYS.map((key) => masterOf(cluster, `lock:{${key}}`))).size).toBe(3);
  await prefixed.acquire('other');
  const held = await Promise.all(KEYS.map((key) => locks.acquire(key)));
  const waiting = open().then((others) => others.acquire(KEYS[0]!));
  await until(async () => (await locks.inspect(KEYS[0]!))!.waitingProcesses?.length === 1, { what: 'one waits' });

  const list = await locks.list({ budgetMs: 60_000 });
  expect(list.complete).toBe(true);
  expect(list.locks.map(({ key }) => key)).toEqual(KEYS);
  expect(list.locks[0]!.waitingProcesses).toMatchObject([{ pid: process.pid }]);
  expect((await prefixed.list({ budgetMs: 60_000 })).locks.map(({ key }) => key)).toEqual(['other']);
  await Promise.all(held.map((lock) => lock.release()));
  await (await waiting).release();
});

it('a list of a Cluster fails, and names the master, if one cannot be asked [G432]', async () => {
  const locks = await open({ commandTimeoutMs: 3_000 });
  const lost = cluster.nodes[2]!;
  const refused = () =>
    locks.list().then(
      () => undefined,
      (error: unknown) => error as LockUnavailableError,
    );
  await locks.list();
  const named = { code: 'LOCK_UNAVAILABLE', causes: [{ node: `127.0.0.1:${lost.port}` }] };
  lost.pause();
  expect(await refused()).toMatchObject(named);
  lost.resume();
  await until(async () => (await refused()) === undefined, { what: 'it answers again' });

  await lost.kill();
  expect(await refused()).toMatchObject(named);
  expect(await refused()).toMatchObject(named); // the client no longer has a connection to it
});
