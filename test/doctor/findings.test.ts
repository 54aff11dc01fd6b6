import { describe, expect, it } from 'vitest';
import type { Finding } from 'nest-redis-lock';
import { reportOn } from '../../lib/stores/redis/doctor/doctor.js';
import type { ExaminedNode, RedisKind } from '../../lib/stores/redis/doctor/diagnosis.js';

/** What a check found on a server that is as it should be, but for what is said otherwise. */
function node(name: string, otherwise: Partial<ExaminedNode> = {}): ExaminedNode {
  return {
    name,
    reachable: true,
    server: 'Redis',
    version: '7.0.15',
    runId: `run ${name}`,
    role: 'master',
    replicationId: `history ${name}`,
    readOnly: false,
    isClusterClient: false,
    missingRights: [],
    unknownCommands: [],
    notChecked: [],
    ...otherwise,
  };
}

async function findings(backend: RedisKind, ...nodes: ExaminedNode[]): Promise<Finding[]> {
  return (await reportOn(backend, [{ run: async () => nodes }], 1_000)).findings;
}

const codes = (found: readonly Finding[]) => found.map(({ severity, code }) => `${severity} ${code}`);

describe('What the doctor makes of what it found', () => {
  it('is that a Redis before 6.2 can give no locks, and a later one can', async () => {
    expect(await findings('redis', node('a', { version: '6.0.16' }))).toEqual([
      {
        severity: 'error',
        code: 'too-old',
        node: 'a',
        message: 'a runs Redis 6.0.16: locks need Redis 6.2 or newer. Update it.',
      },
    ]);
    for (const version of ['6.2.0', '7.0.15', '10.2.0'])
      expect(await findings('redis', node('a', { version }))).toEqual([]);
  });

  it('is that clocks differ only if slow answers do not explain it', async () => {
    const clocked = (name: string, clockOffsetMs: number, clockToleranceMs: number) =>
      node(name, { clockOffsetMs, clockToleranceMs });
    const differ = async (clockToleranceMs: number) =>
      codes(await findings('redlock', clocked('a', 0, 1), clocked('b', 1_500, clockToleranceMs), clocked('c', 0, 1)));
    expect(await differ(600)).toEqual([]);
    expect(await differ(400)).toEqual(['warning clocks-differ']);
  });

  it('is a replica of another node also before it has received anything from it', async () => {
    const unsynced = node('b', { role: 'replica', readOnly: true, replicaOf: 'a' });
    for (const nodes of [
      [node('a'), unsynced, node('c')],
      [unsynced, node('a'), node('c')],
    ]) {
      const [first] = await findings('redlock', ...nodes);
      expect(first).toMatchObject({ severity: 'error', code: 'not-independent' });
      expect(first!.message).toContain('b is a replica of a');
    }
  });

  it('is an error where fewer replicas follow than each lock waits for', async () => {
    const [few] = await findings('redis', node('a', { replicas: 1, awaitedReplicas: 2 }));
    expect(few).toMatchObject({ severity: 'error', code: 'too-few-replicas' });
    expect(few!.message).toContain('a has 1 replica(s), and each lock waits for 2 (waitForReplicas)');
    expect(codes(await findings('redis', node('a', { replicas: 2, awaitedReplicas: 2 })))).toEqual([]);
    expect(codes(await findings('redis', node('a', { awaitedReplicas: 2 })))).toEqual([]); // it does not tell
  });

  it('puts errors before warnings', async () => {
    const found = await findings(
      'redis',
      node('a', { evictionPolicy: 'allkeys-lru', missingRights: ['+zadd', '+get'] }),
    );
    expect(codes(found)).toEqual(['error missing-rights', 'warning eviction', 'warning missing-rights']);
  });
});
