import { expect, it } from 'vitest';
import type { Finding, RedisLockModuleOptions } from 'nest-redis-lock';
import { proxyTo, redisServer, redisServers } from '../support/stage.js';
import { codes, diagnosisOf, nameOf } from './diagnosed.js';
import type { RedisServer } from '../support/redis-server.js';
import { replicaOf } from '../support/replica-of.js';
import { skewedClock } from './doors.js';

const findingsOn = async (...redlock: string[]): Promise<Finding[]> => (await diagnosisOf({ redlock })).findings;

it('the doctor finds the replica of another node also when it knows its master by another address [G227]', async () => {
  const [master, other] = (await redisServers(2)) as [RedisServer, RedisServer];
  const replica = await replicaOf(master, await proxyTo(master));
  const findings = await findingsOn(master.url, replica.url, other.url);
  expect(codes(findings)).toEqual(['error not-independent', 'warning read-only-replica']);
  expect(findings[0]!.message).toContain(`${nameOf(replica)} is a replica of ${nameOf(master)}`);
});

it('the doctor finds a replica of another node, two replicas of a master that is not in the list, and nothing wrong with a replica that was made a master', async () => {
  const [master, other] = (await redisServers(2)) as [RedisServer, RedisServer];
  const [replica, second] = [await replicaOf(master), await replicaOf(master)];
  const found = async (...nodes: RedisServer[]) => findingsOn(...nodes.map(({ url }) => url));
  const findings = await found(replica, other, master);
  expect(codes(findings)).toEqual(['error not-independent', 'warning read-only-replica']);
  expect(findings[0]!.message).toBe(
    `${nameOf(replica)} is a replica of ${nameOf(master)}: they fail together. redlock needs independent masters.`,
  );
  const both = await found(replica, second, other);
  expect(codes(both)).toEqual(['error read-only-replica', 'error read-only-replica', 'error not-independent']);
  expect(both[2]!.message).toContain('are replicas of the same master');
  await replica.command('REPLICAOF', 'NO', 'ONE');
  expect(await found(master, replica, other)).toEqual([]);
});

it('the doctor finds nodes whose clocks are more than a second apart, and says how many nodes there are, and must vote [G240]', async () => {
  const [one, two, three] = (await redisServers(3)) as [RedisServer, RedisServer, RedisServer];
  const ahead = await skewedClock(three, 60);
  const { findings, where } = await diagnosisOf({ redlock: [one.url, two.url, ahead.url] });
  expect(where).toBe('on a Redlock of 3 nodes, 2 of which must vote for a lock');
  expect(codes(findings)).toEqual(['warning clocks-differ']);
  const [, fast, ms, slow] = /^The clock of (\S+) is at least (\d+) ms ahead of the clock of (\S+)\./.exec(
    findings[0]!.message,
  )!;
  expect(fast).toBe(ahead.name);
  expect([nameOf(one), nameOf(two)]).toContain(slow);
  expect(Number(ms)).toBeGreaterThan(50_000);
  expect(Number(ms)).toBeLessThanOrEqual(60_001);
});

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

it('the doctor distinguishes a fencing counter that is days ahead from one whose clock was set back [G531]', async () => {
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
    ['counter-ahead', nameOf(nodes[1]!)],
    ['counter-no-number', nameOf(nodes[1]!)],
  ]);
  expect(findings[0]!.message).toContain('the fencing counter app:locks:fence:7 (and 1 more)');
});
