import { expect, it } from 'vitest';
import type { Finding, RedisLockModuleOptions } from 'nest-redis-lock';
import { redisServer } from '../support/stage.js';
import { diagnosisOf } from './diagnosed.js';

const timeUs = () => Date.now() * 1_000;

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
  await server.command('DEL', 'lock:fence');
  await server.command('RPUSH', 'lock:fence', 'a');
  const other = await examined({ redis: server.url });
  expect(other).toMatchObject({
    findings: [{ severity: 'warning', code: 'counter-no-number' }],
    odd: [[{ key: 'lock:fence' }]],
  });
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
