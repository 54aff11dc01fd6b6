import { afterAll, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { formatDiagnosis, type Finding, type NodeReport } from 'nest-redis-lock';
import { proxyTo, redisServer } from '../support/stage.js';
import { openLocks } from '../support/open-locks.js';
import { RedisCluster } from '../support/redis-cluster.js';
import type { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { replicaOf } from '../support/replica-of.js';
import { commandTimeoutMs, diagnosed, diagnosisOf } from './diagnosed.js';

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

  it('tells all about a server, and finds nothing wrong with one that is durable and evicts nothing', async () => {
    const server = await redisServer(...DURABLE, '--maxmemory', '100mb');
    const startedAt = Date.now();
    const diagnosis = await diagnose(server);
    expect(diagnosis).toEqual({
      registration: 'default',
      backend: 'redis',
      where: 'on one Redis',
      checkedAt: expect.stringMatching(/^\d{4}-\d\d-\d\dT[\d:.]+Z$/),
      findings: [],
      nodes: [
        {
          name: nameOf(server),
          reachable: true,
          server: expect.any(String),
          version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
          runId: expect.stringMatching(/^[0-9a-f]{40}$/),
          role: 'master',
          replicationId: expect.stringMatching(/^[0-9a-f]{40}$/),
          replicas: 0,
          readOnly: false,
          cluster: false,
          isClusterClient: false,
          evictionPolicy: 'noeviction',
          maxMemoryBytes: 100 * 2 ** 20,
          persistence: { appendOnly: true, appendFsync: 'always', snapshots: false },
          clockOffsetMs: expect.any(Number),
          clockToleranceMs: expect.any(Number),
          roundTripMs: expect.any(Number),
          commandTimeoutMs,
          missingRights: [],
          unknownCommands: [],
          notChecked: [],
          summary: expect.stringMatching(
            /^\w+ [\d.]+, master, 0 replicas, noeviction, append-only file \(fsync always\), clock /,
          ),
        },
      ],
    });
    expect(Date.parse(diagnosis.checkedAt)).toBeGreaterThanOrEqual(startedAt);
    expect(JSON.parse(JSON.stringify(diagnosis))).toEqual(diagnosis);
    const { clockOffsetMs = NaN, clockToleranceMs = NaN } = diagnosis.nodes[0]!;
    expect(Math.abs(clockOffsetMs)).toBeLessThanOrEqual(clockToleranceMs + 2); // Date.now() is cut to milliseconds
  });

  it.each([
    ['RESP2', { protocol: 2 as const }],
    ['the reply shapes of RESP3', { replyMapping: 'resp3' as const }],
    ['strings for numbers', { stringNumbers: true }],
    ['auto-pipelining', { enableAutoPipelining: true }],
  ])('finds the same over a client with %s', async (_name, options) => {
    const server = await redisServer();
    await server.command('CONFIG', 'SET', 'save', '60 1');
    const over = async (redis: object) => {
      const { nodes, findings } = await diagnosisOf({ redis: { host: '127.0.0.1', port: server.port, ...redis } });
      const summary = (node: NodeReport) => node.summary.replace(/clock .*/, 'clock');
      const alike = nodes.map((node) => ({
        ...node,
        clockOffsetMs: 0,
        clockToleranceMs: 0,
        roundTripMs: 0,
        summary: summary(node),
      }));
      return { findings, nodes: alike };
    };
    const found = await over(options);
    expect(found).toEqual(await over({}));
    expect(found.nodes).toMatchObject([{ persistence: { appendOnly: false, snapshots: true } }]);
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

  it('counts the replicas', async () => {
    const master = await redisServer();
    await replicaOf(master);
    expect((await diagnose(master)).nodes).toMatchObject([{ role: 'master', replicas: 1 }]);
  });

  it('the doctor says why a server refuses writes [G239]', async () => {
    const server = await redisServer(...DURABLE, '--maxmemory', '1');
    const { nodes, findings } = await diagnose(server);
    expect(nodes).toMatchObject([{ refusesWrites: expect.stringMatching(/^OOM /), readOnly: false }]);
    expect(codes(findings)).toEqual(['error refuses-writes']);
    expect(findings[0]!.message).toMatch(/refuses writes \(OOM .*\): no lock can be taken until it accepts them\./);
  });

  it('warns of a node of a Cluster that is asked as if it were alone', async () => {
    const { nodes, findings } = await diagnose((await starting).nodes[0]!);
    expect(nodes).toMatchObject([{ cluster: true, isClusterClient: false, missingRights: [] }]);
    expect(codes(findings)).toEqual(['warning no-persistence', 'warning cluster-mode']);
  });

  it('measures how far the clock of the server is ahead of its own', async () => {
    const locks = await openLocks({ redis: (await redisServer()).url });
    const now = Date.now;
    const shifted = vi.spyOn(Date, 'now').mockImplementation(() => now.call(Date) - 7_000);
    onTestFinished(() => shifted.mockRestore());
    const { nodes } = await diagnosed(locks);
    const { clockOffsetMs = NaN, clockToleranceMs = NaN } = nodes[0]!;
    expect(Math.abs(clockOffsetMs - 7_000)).toBeLessThanOrEqual(clockToleranceMs + 2);
  });

  it('says that locks in memory exclude nobody else', async () => {
    const diagnosis = await (await openLocks({ memory: true })).diagnose();
    expect(diagnosis).toMatchObject({
      backend: 'memory',
      nodes: [],
      findings: [{ severity: 'warning', code: 'memory' }],
    });
    expect(formatDiagnosis(diagnosis)).toMatch(
      /^Locks of "default", in the memory of this process\.\n {2}warning: Locks are kept in the memory/,
    );
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

  it('whose connection breaks says so, and the next finds it well', async () => {
    const server = await redisServer(...DURABLE);
    const proxy = await proxyTo(server);
    const locks = await openLocks({ redis: proxy.url, commandTimeoutMs });
    const cut = proxy.cutAfterRequest('CONFIG');
    const [broken] = await Promise.all([locks.diagnose(), cut]);
    expect(broken.nodes).toMatchObject([{ reachable: false, problem: 'the connection broke before the answer came' }]);
    await until(async () => (await diagnosed(locks)).findings.length === 0, { what: 'it is well again' });
  });

  it('that is dead says that nobody listens there, and holds no password', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: `redis://:hunter2@127.0.0.1:${server.port}`, lazyConnect: true });
    await server.kill();
    const diagnosis = await until(
      async () => {
        const report = await locks.diagnose();
        return report.nodes[0]!.problem?.includes('ECONNREFUSED') ? report : undefined;
      },
      { what: 'the connection was refused' },
    );
    expect(diagnosis.nodes).toMatchObject([{ name: nameOf(server), reachable: false }]);
    expect(`${JSON.stringify(diagnosis)} ${formatDiagnosis(diagnosis)}`).not.toContain('hunter2');
  });

  it('waits for a lazy connection', async () => {
    const server = await redisServer(...DURABLE);
    const locks = await openLocks({ redis: server.url, lazyConnect: true, commandTimeoutMs });
    expect((await diagnosed(locks)).findings).toEqual([]);
  });

  it('of a closed service reports that it is not connected', async () => {
    const server = await redisServer();
    const locks = await openLocks({ redis: server.url });
    await locks.onApplicationShutdown();
    expect((await locks.diagnose()).nodes).toMatchObject([{ reachable: false, problem: expect.any(String) }]);
  });
});
