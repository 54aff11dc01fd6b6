import { describe, expect, it } from 'vitest';
import { formatDiagnosis } from 'nest-redis-lock';
import { redisServer } from '../support/stage.js';
import { openLocks } from '../support/open-locks.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { replicaOf } from '../support/replica-of.js';
import { codes, commandTimeoutMs, diagnosisOf, DURABLE, nameOf } from './diagnosed.js';

const diagnose = ({ url }: { url: string }) => diagnosisOf({ redis: url });

describe('The doctor of one Redis', () => {
  it('reports all about a server, and finds nothing wrong with one that is durable and evicts nothing', async () => {
    const server = await redisServer(...DURABLE, '--maxmemory', '100mb');
    await replicaOf(server);
    const diagnosis = await diagnose(server);
    const id = expect.stringMatching(/^[0-9a-f]{40}$/) as string;
    const ms = expect.any(Number) as number;
    expect(diagnosis).toEqual({
      registration: 'default',
      backend: 'redis',
      where: 'on one Redis',
      checkedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      findings: [],
      nodes: [
        {
          ...{ name: nameOf(server), reachable: true, server: expect.any(String), runId: id, replicationId: id },
          ...{ role: 'master', replicas: 1, readOnly: false, cluster: false, isClusterClient: false },
          ...{ clockOffsetMs: ms, clockToleranceMs: ms, roundTripMs: ms, commandTimeoutMs },
          ...{ notChecked: [] },
          version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
          evictionPolicy: 'noeviction',
          maxMemoryBytes: 100 * 2 ** 20,
          persistence: { appendOnly: true, appendFsync: 'always', snapshots: false },
          summary: expect.stringMatching(
            /^\w+ [\d.]+, master, 1 replica, noeviction, append-only file \(fsync always\), clock /,
          ),
        },
      ],
    });
    const { clockOffsetMs = NaN, clockToleranceMs = NaN } = diagnosis.nodes[0]!;
    expect(Math.abs(clockOffsetMs)).toBeLessThanOrEqual(clockToleranceMs + 2); // Date.now() is cut to milliseconds
    const over = { host: '127.0.0.1', port: server.port, protocol: 2 as const, stringNumbers: true };
    const { nodes } = await diagnosisOf({ redis: { ...over, enableAutoPipelining: true } });
    expect(nodes).toEqual(
      diagnosis.nodes.map((node) => ({
        ...node,
        ...{ clockOffsetMs: ms, clockToleranceMs: ms, roundTripMs: ms },
        summary: expect.any(String),
      })),
    );
  });

  it('says that locks in memory exclude no other process, and that a dead server cannot be reached, without its password', async () => {
    const inMemory = await (await openLocks({ memory: true })).diagnose();
    expect(inMemory.findings).toMatchObject([{ severity: 'warning', code: 'memory' }]);
    expect(formatDiagnosis(inMemory)).toMatch(
      /^Locks of "default", in the memory of this process\.\n {2}warning: Locks are kept in the memory/,
    );
    const locks = await openLocks({ redis: 'redis://:hunter2@127.0.0.1:1', lazyConnect: true });
    const dead = async () => {
      const report = await locks.diagnose();
      return report.nodes[0]!.problem?.includes('ECONNREFUSED') ? report : undefined;
    };
    const diagnosis = await until(dead, { what: 'the connection was refused' });
    expect(diagnosis.nodes).toMatchObject([{ name: '127.0.0.1:1', reachable: false }]);
    expect(`${JSON.stringify(diagnosis)} ${formatDiagnosis(diagnosis)}`).not.toContain('hunter2');
  });

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
    expect(await checks(server)).toBeLessThanOrEqual(1 + asked); // one of the three earlier ones reached the server
    await until(async () => (await connections()) === before, { what: 'it has no connection of its own any more' });
  });
});
