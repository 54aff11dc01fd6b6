import { Cluster } from 'ioredis';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import type { Finding, RedisLockModuleOptions } from 'nest-redis-lock';
import { LockKeys } from '../../lib/stores/redis/node/lock-keys.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { redisServer } from '../support/stage.js';
import { diagnosisOf } from './diagnosed.js';

const timeUs = () => Date.now() * 1_000;

/** It gets ready while the other tests run. */
let starting: Promise<RedisCluster>;
beforeAll(() => {
  starting = RedisCluster.start();
});
afterAll(async () => (await starting).stop());

async function examined(options: RedisLockModuleOptions) {
  const { findings, nodes } = await diagnosisOf(options);
  const about = ({ code }: Finding) => code.startsWith('counter-');
  return { findings: findings.filter(about), odd: nodes.map(({ oddCounters }) => oddCounters) };
}

it('the doctor warns of a fencing counter that is more than a second ahead of the clock of its server [G250]', async () => {
  const server = await redisServer();
  await server.command('SET', 'lock:fence', timeUs() + 800_000);
  expect(await examined({ redis: server.url })).toEqual({ findings: [], odd: [undefined] });
  await server.command('SET', 'lock:fence', timeUs() + 3_600_000_000);
  const { findings, odd } = await examined({ redis: server.url });
  expect(odd).toEqual([[{ key: 'lock:fence', aheadMs: expect.any(Number) }]]);
  const { aheadMs } = odd[0]![0]!;
  expect(aheadMs).toBeGreaterThan(3_590_000);
  expect(aheadMs).toBeLessThanOrEqual(3_600_001);
  expect(findings).toMatchObject([{ severity: 'warning', code: 'counter-ahead' }]);
  expect(findings[0]!.message).toContain(`has the fencing counter lock:fence ${aheadMs} ms ahead of its clock`);
});

it('the doctor tells a fencing counter that is days ahead from one whose clock was set back [G531]', async () => {
  const server = await redisServer();
  await server.command('SET', 'lock:fence', timeUs() + 10 * 86_400_000_000);
  const { findings, odd } = await examined({ redis: server.url });
  const { aheadMs } = odd[0]![0]!;
  expect(aheadMs).toBeGreaterThan(9 * 86_400_000);
  expect(findings).toMatchObject([{ severity: 'warning', code: 'counter-far-ahead' }]);
  expect(findings[0]!.message).toContain(`has the fencing counter lock:fence ${aheadMs} ms ahead of its clock`);
  expect(findings[0]!.message).toContain('Find out who may write it.');
});

it.each([
  ['a text', 'SET', 'lock:fence', 'word'],
  ['a list', 'RPUSH', 'lock:fence', 'a'],
  ['a number that is out of range', 'SET', 'lock:fence', '9000000000000001'],
])('the doctor warns of %s in the place of a fencing counter', async (_what, ...command) => {
  const server = await redisServer();
  await server.command(...(command as [string, ...string[]]));
  const { findings, odd } = await examined({ redis: server.url });
  expect(odd).toEqual([[{ key: 'lock:fence' }]]);
  expect(findings).toMatchObject([{ severity: 'warning', code: 'counter-no-number' }]);
  expect(findings[0]!.message).toContain('has no number at lock:fence');
});

it('the doctor finds the odd counters of a node of a Redlock, whatever prefixes they have', async () => {
  const nodes = await Promise.all([redisServer(), redisServer(), redisServer()]);
  await nodes[1]!.command('SET', 'app:locks:fence:4095', timeUs() + 60_000_000);
  await nodes[1]!.command('SET', 'app:locks:fence:7', timeUs() + 90_000_000);
  await nodes[1]!.command('SET', 'app:locks:fence:0', timeUs());
  await nodes[1]!.command('SET', 'app:locks:fence:513', 'word');
  const redlock = nodes.map(({ port }) => ({ host: '127.0.0.1', port, keyPrefix: 'app:' }));
  const { findings, odd } = await examined({ redlock, keyPrefix: 'locks', admission: false });
  expect(odd.map((counters) => counters?.map(({ key }) => key))).toEqual([
    undefined,
    ['app:locks:fence:7', 'app:locks:fence:513', 'app:locks:fence:4095'],
    undefined,
  ]);
  expect(findings.map(({ code, node }) => [code, node])).toEqual([
    ['counter-ahead', `127.0.0.1:${nodes[1]!.port}`],
    ['counter-no-number', `127.0.0.1:${nodes[1]!.port}`],
  ]);
  expect(findings[0]!.message).toContain('the fencing counter app:locks:fence:7 (and 1 more)');
});

it('the doctor finds the odd counters of a Cluster on the masters that have them', async () => {
  const cluster = await starting;
  const client = new Cluster(cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })));
  onTestFinished(() => client.disconnect());
  const { fences } = new LockKeys('lock', 'per-slot');
  const ahead = [fences[0]!, fences[8_191]!, fences[16_383]!];
  for (const key of ahead) await client.set(key, timeUs() + 60_000_000);
  const { odd } = await examined({ redis: client });
  const found = odd.map((counters) => counters?.map(({ key }) => key));
  expect(found.flat().sort()).toEqual([...ahead].sort());
  expect(found.every((keys) => keys?.length === 1)).toBe(true);
});
