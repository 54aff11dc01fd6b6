import { expect, it } from 'vitest';
import type { Finding } from 'nest-redis-lock';
import { proxyTo, redisServers } from '../support/stage.js';
import { diagnosisOf } from './diagnosed.js';
import type { RedisServer } from '../support/redis-server.js';
import { replicaOf } from '../support/replica-of.js';
import { skewedClock } from './skewed-clock.js';

const findingsOn = async (...redlock: string[]): Promise<Finding[]> => (await diagnosisOf({ redlock })).findings;

const codes = (findings: readonly Finding[]) => findings.map(({ severity, code }) => `${severity} ${code}`);
const nameOf = ({ port }: { port: number }) => `127.0.0.1:${port}`;

it('the doctor finds the replica of another node also when it knows its master by another address [G227]', async () => {
  const [master, other] = (await redisServers(2)) as [RedisServer, RedisServer];
  const replica = await replicaOf(master, await proxyTo(master));
  const findings = await findingsOn(master.url, replica.url, other.url);
  expect(codes(findings)).toEqual(['error not-independent', 'warning read-only-replica']);
  expect(findings[0]!.message).toContain(`${nameOf(replica)} is a replica of ${nameOf(master)}`);
});

it('the doctor finds a replica of another node, two replicas of a master that is not in the list, and nothing in one that was made a master', async () => {
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

it('the doctor finds nodes whose clocks are more than a second apart [G240]', async () => {
  const [one, two, three] = (await redisServers(3)) as [RedisServer, RedisServer, RedisServer];
  const ahead = await skewedClock(three, 60);
  const findings = await findingsOn(one.url, two.url, ahead);
  expect(codes(findings)).toEqual(['warning clocks-differ']);
  const [, fast, ms, slow] = /^The clock of (\S+) is at least (\d+) ms ahead of that of (\S+)\./.exec(
    findings[0]!.message,
  )!;
  expect(`redis://${fast}`).toBe(ahead);
  expect([nameOf(one), nameOf(two)]).toContain(slow);
  expect(Number(ms)).toBeGreaterThan(50_000);
  expect(Number(ms)).toBeLessThanOrEqual(60_001);
});
