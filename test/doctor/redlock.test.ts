import { describe, expect, it } from 'vitest';
import type { Finding } from 'nest-redis-lock';
import { proxyTo, redisServers } from '../support/stage.js';
import { openLocks } from '../support/open-locks.js';
import { commandTimeoutMs, diagnosisOf } from './diagnosed.js';
import type { RedisServer } from '../support/redis-server.js';
import { aclUser } from './acl-user.js';
import { replicaOf } from '../support/replica-of.js';
import { skewedClock } from './skewed-clock.js';
import { until } from '../support/until.js';

const findingsOn = async (...redlock: string[]): Promise<Finding[]> => (await diagnosisOf({ redlock })).findings;

const codes = (findings: readonly Finding[]) => findings.map(({ severity, code }) => `${severity} ${code}`);
const nameOf = ({ port }: { port: number }) => `127.0.0.1:${port}`;

describe('The doctor of a Redlock', () => {
  it('finds nothing wrong with independent masters', async () => {
    const urls = (await redisServers(3)).map(({ url }) => url);
    expect(await findingsOn(...urls)).toEqual([]);
  });

  it('finds a node that is a replica of another one, whichever stands first', async () => {
    const [master, other] = (await redisServers(2)) as [RedisServer, RedisServer];
    const replica = await replicaOf(master);
    for (const urls of [
      [master.url, replica.url, other.url],
      [replica.url, other.url, master.url],
    ]) {
      const findings = await findingsOn(...urls);
      expect(codes(findings)).toEqual(['error not-independent', 'warning read-only-replica']);
      expect(findings[0]!.message).toBe(
        `${nameOf(replica)} is a replica of ${nameOf(master)}: they fail together. redlock needs independent masters.`,
      );
    }
  });

  it('the doctor finds the replica of another node also when it knows its master by another address [G227]', async () => {
    const [master, other] = (await redisServers(2)) as [RedisServer, RedisServer];
    const replica = await replicaOf(master, await proxyTo(master));
    const findings = await findingsOn(master.url, replica.url, other.url);
    expect(codes(findings)).toEqual(['error not-independent', 'warning read-only-replica']);
    expect(findings[0]!.message).toContain(`${nameOf(replica)} is a replica of ${nameOf(master)}`);
  });

  it('finds two replicas of a master that is not in the list, and that there is no majority', async () => {
    const [master, other] = (await redisServers(2)) as [RedisServer, RedisServer];
    const replicas = [await replicaOf(master), await replicaOf(master)];
    const findings = await findingsOn(...replicas.map(({ url }) => url), other.url);
    expect(codes(findings)).toEqual(['error read-only-replica', 'error read-only-replica', 'error not-independent']);
    expect(findings[2]!.message).toContain('are replicas of the same master');
  });

  it('takes a replica that was made a master for what it is', async () => {
    const [master, other] = (await redisServers(2)) as [RedisServer, RedisServer];
    const promoted = await replicaOf(master);
    await promoted.command('REPLICAOF', 'NO', 'ONE');
    expect(await findingsOn(master.url, promoted.url, other.url)).toEqual([]);
  });

  it('warns of a minority that cannot be used, and calls it an error when no majority is left', async () => {
    const servers = await redisServers(3);
    const locks = await openLocks({ redlock: servers.map(({ url }) => url), commandTimeoutMs });
    const diagnosisWith = (answering: number) =>
      until(
        async () => {
          const diagnosis = await locks.diagnose();
          const reached = diagnosis.nodes.filter(({ reachable }) => reachable).length;
          return reached === answering ? diagnosis : undefined;
        },
        { what: `${answering} nodes answer in time` },
      );
    await servers[0]!.kill();
    const { nodes, findings } = await diagnosisWith(2);
    expect(nodes.map(({ name, reachable }) => [name, reachable])).toEqual([
      [nameOf(servers[0]!), false],
      [nameOf(servers[1]!), true],
      [nameOf(servers[2]!), true],
    ]);
    expect(codes(findings)).toEqual(['warning unreachable']);
    expect(findings[0]).toMatchObject({
      node: nameOf(servers[0]!),
      message: expect.stringContaining('cannot be reached'),
    });
    await servers[1]!.kill();
    expect(codes((await diagnosisWith(1)).findings)).toEqual(['error unreachable', 'error unreachable']);
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

  it('cannot tell whether nodes are independent that do not let it ask, and says so', async () => {
    const servers = (await redisServers(3)) as [RedisServer, RedisServer, RedisServer];
    const mute = { ...(await aclUser(servers[2], { without: ['+info'] })), enableReadyCheck: false };
    const { findings } = await diagnosisOf({ redlock: [servers[0].url, servers[1].url, mute] });
    expect(codes(findings)).toEqual(['warning not-checked']);
    expect(findings[0]!.message).toContain('the right +info is needed');
  });
});
