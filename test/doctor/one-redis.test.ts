import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { type Finding } from 'nest-redis-lock';
import { redisServer } from '../support/stage.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { diagnosisOf } from './diagnosed.js';

const diagnose = ({ url }: { url: string }) => diagnosisOf({ redis: url });
const codes = (findings: readonly Finding[]) => findings.map(({ severity, code }) => `${severity} ${code}`);
const nameOf = ({ port }: { port: number }) => `127.0.0.1:${port}`;
const DURABLE = ['--appendonly', 'yes', '--appendfsync', 'always'];

describe('The doctor of one Redis', () => {
  /** It gets ready while the other tests run. */
  let starting: Promise<RedisCluster>;
  beforeAll(() => {
    starting = RedisCluster.start(1);
  });
  afterAll(async () => (await starting).stop());

  it.each([
    ['allkeys-lru', '100mb', 'when its memory is full it may evict locks'],
    ['volatile-ttl', '100mb', 'when its memory is full it may evict locks'],
    ['allkeys-random', '0', 'once a maxmemory is set and reached it may evict locks'],
  ])('the doctor warns of the policy %s (maxmemory %s) [G237]', async (policy, maxmemory, consequence) => {
    const server = await redisServer(...DURABLE, '--maxmemory-policy', policy, '--maxmemory', maxmemory);
    const { nodes, findings } = await diagnose(server);
    expect(nodes).toMatchObject([{ evictionPolicy: policy }]);
    expect(codes(findings)).toEqual(['warning eviction']);
    expect(findings[0]!.message).toContain(`${nameOf(server)} has the maxmemory-policy ${policy}: ${consequence}`);
  });

  it('the doctor warns of a server that keeps nothing on disk [G238]', async () => {
    const { nodes, findings } = await diagnose(await redisServer());
    expect(nodes).toMatchObject([{ persistence: { appendOnly: false, snapshots: false } }]);
    expect(codes(findings)).toEqual(['warning no-persistence']);
  });

  it('the doctor says why a server refuses writes [G239]', async () => {
    const server = await redisServer(...DURABLE, '--maxmemory', '1');
    const { nodes, findings } = await diagnose(server);
    expect(nodes).toMatchObject([{ refusesWrites: expect.stringMatching(/^OOM /), readOnly: false }]);
    expect(codes(findings)).toEqual(['error refuses-writes']);
    expect(findings[0]!.message).toMatch(/refuses writes \(OOM .*\): no lock can be taken until it accepts them\./);
  });
});

describe('A check of a server', () => {
  const checks = async (server: RedisServer) => (await server.calls()).exists ?? 0; // one of its commands

  it('the check of a server that does not answer ends in time, and is not run twice at once [G242]', async () => {
    const server = await redisServer(...DURABLE);
    const locks = await openLocks({ redis: { host: '127.0.0.1', port: server.port, socketTimeout: 60_000 } });
    const connections = async () => ((await server.command('CLIENT', 'LIST')) as string).trim().split('\n').length;
    const before = await connections();
    const sockets = () => process.getActiveResourcesInfo().filter((kind) => kind === 'TCPSocketWrap').length;
    const socketsBefore = sockets();
    server.pause();
    const reports = [await locks.diagnose(), ...(await Promise.all([locks.diagnose(), locks.diagnose()]))];
    for (const { nodes, findings } of reports) {
      expect(nodes).toMatchObject([
        { name: nameOf(server), reachable: false, problem: expect.stringMatching(/^no answer within \d+ ms$/) },
      ]);
      expect(codes(findings)).toEqual(['error unreachable']);
    }
    await until(() => sockets() <= socketsBefore, { what: 'it has given up its own connection' });
    server.resume();
    let asked = 0;
    const answers = async () => (asked++, (await locks.diagnose()).nodes[0]!.reachable);
    await until(answers, { what: 'it answers again' });
    expect(await checks(server)).toBeLessThanOrEqual(1 + asked); // of the three before, one reached the server
    await until(async () => (await connections()) === before, { what: 'it has no connection of its own any more' });
  });
});
