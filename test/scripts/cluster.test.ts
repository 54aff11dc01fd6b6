import { Cluster } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { ACQUIRE } from '../../lib/stores/redis/scripts/lua.js';
import { clusterSlot } from '../../lib/stores/redis/client/cluster-slot.js';
import { ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';
import { portOf } from '../support/port-of.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { runScript } from '../support/run-script.js';
import { until } from '../support/until.js';
import { together } from '../support/together.js';

/** Repeatable, so that a failure can be looked at. */
function pseudoRandom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => (state = (state * 48_271) % 2_147_483_647) % below;
}

describe('In a Redis Cluster', () => {
  let cluster: RedisCluster;
  let client: Cluster;

  beforeAll(async () => {
    cluster = await RedisCluster.start(3);
    client = connect();
    await client.ping();
  });
  afterAll(async () => {
    client.disconnect();
    await cluster.stop();
  });

  const connect = (keyPrefix?: string): Cluster =>
    new Cluster(
      cluster.nodes.map(({ port }) => ({ host: '127.0.0.1', port })),
      { keyPrefix },
    );
  const resetCalls = () => Promise.all(cluster.nodes.map((node) => node.resetCalls()));
  const evalshas = async () => {
    const calls = await Promise.all(cluster.nodes.map((node) => node.calls()));
    return calls.map(({ evalsha = 0 }) => evalsha);
  };

  it('the slot of a key is what CLUSTER KEYSLOT says', async () => {
    const random = pseudoRandom(20_261_103);
    const alphabet = ['{', '}', '{', '}', 'a', 'b', ':', '%', ' ', 'é', '鍵', '🔑', '\0', '\r\n'];
    const keys = Array.from({ length: 1_000 }, () =>
      Array.from({ length: random(12) }, () => alphabet[random(alphabet.length)]).join(''),
    );
    keys.push('', '{}', '{}a', 'a{}{b}', '{{a}}', 'lock:{order:7}', 'lock:{order:7}:fence', 'x'.repeat(5_000));
    const slots = await Promise.all(keys.map((key) => cluster.nodes[0]!.command('CLUSTER', 'KEYSLOT', key)));
    expect(keys.map(clusterSlot)).toEqual(slots);
  });

  it('operations of one tick on keys of one slot travel in one call, those of other slots in their own', async () => {
    const runner = new ScriptRunner(portOf(client), 5_000);
    const keys = Array.from({ length: 90 }, (_, index) => `{${'abc'[index % 3]}}:${index}`);
    const acquire = (owner: string) =>
      together(runner, () =>
        Promise.all(keys.map((key) => runScript(runner, ACQUIRE, [key, `${key}:fence`], [owner, 10_000]))),
      );
    await acquire('first'); // fills the script caches
    await resetCalls();
    expect(await acquire('second')).toEqual(keys.map(() => [expect.any(Number), 'first']));
    // Slots 15495, 3300 and 7365: one of each node; and on the third the one that was under way.
    expect(await evalshas()).toEqual([1, 1, 2]);
  });

  it('more than 50 operations on one slot travel in several calls', async () => {
    const runner = new ScriptRunner(portOf(client), 5_000);
    const keys = Array.from({ length: 101 }, (_, index) => `{a}:many:${index}`);
    await runScript(runner, ACQUIRE, ['{a}:warm-up', '{a}:warm-up:fence'], ['me', 10_000]);
    await resetCalls();
    await Promise.all(keys.map((key) => runScript(runner, ACQUIRE, [key, `${key}:fence`], ['me', 10_000])));
    expect((await evalshas()).sort()).toEqual([0, 0, 3]);
  });

  it('the key prefix of the client counts for the slot', async () => {
    const prefixed = connect('{one slot for all}:');
    await prefixed.ping();
    const runner = new ScriptRunner(portOf(prefixed), 5_000);
    const run = () =>
      together(runner, () =>
        Promise.all(['a', 'b', 'c'].map((key) => runScript(runner, ACQUIRE, [key, `${key}:fence`], ['me', 10_000]))),
      );
    await run();
    await resetCalls();
    expect(await run()).toEqual([expect.any(Number), expect.any(Number), expect.any(Number)]);
    expect((await evalshas()).sort()).toEqual([0, 0, 2]);
    prefixed.disconnect();
  });

  it('a node that hangs costs its own operations one time limit, and those on other nodes nothing', async () => {
    const runner = new ScriptRunner(portOf(client), 300);
    const acquire = (key: string, owner: string) => runScript(runner, ACQUIRE, [key, `${key}:fence`], [owner, 10_000]);
    await Promise.all(['{a}:hangs', '{b}:hangs'].map((key) => acquire(key, 'first')));
    const where = await Promise.all(cluster.nodes.map(async (each) => (await each.keys('{a}:hangs')).length));
    const node = cluster.nodes[where.indexOf(1)]!;
    node.pause();
    try {
      const [a, b] = await Promise.allSettled(['{a}:hangs', '{b}:hangs'].map((key) => acquire(key, 'second')));
      expect(a).toMatchObject({ status: 'rejected', reason: { mayHaveRun: true } });
      expect(b).toEqual({ status: 'fulfilled', value: [expect.any(Number), 'first'] });

      const onNode = Array.from({ length: 300 }, (_, index) => `other slot:${index}`).filter(
        (key) => client.slots[clusterSlot(key)]![0] === client.slots[clusterSlot('{a}')]![0],
      );
      expect(onNode.length).toBeGreaterThan(50);
      const late = new Promise((resolve) => setImmediate(resolve, 'not at once'));
      const outcomes = Promise.allSettled(onNode.map((key) => acquire(key, 'second')));
      expect(await Promise.race([outcomes, late])).toEqual(
        onNode.map(() => ({ status: 'rejected', reason: expect.objectContaining({ mayHaveRun: false }) })),
      );
      await expect(acquire('{b}:more', 'second')).resolves.toBeGreaterThan(1e15);
    } finally {
      node.resume();
    }
    await until(() => acquire('{a}:more', 'second').then(Boolean, () => false), { what: 'the node serves again' });
  });
});
