import { Cluster } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, vi } from 'vitest';
import { LockKeys } from '../../lib/stores/redis/node/lock-keys.js';
import { ACQUIRE } from '../../lib/stores/redis/scripts/lua.js';
import { type Reply, ScriptRunner } from '../../lib/stores/redis/scripts/script-runner.js';
import { clusterSlot, tagOfSlot } from '../support/cluster-slots.js';
import { portOf } from '../support/port-of.js';
import { RedisCluster } from '../support/redis-cluster.js';
import { runScript } from '../support/run-script.js';
import { together } from '../support/together.js';
import { until } from '../support/until.js';

const SLOTS = 16_384;
const aToken: unknown = expect.stringMatching(/^\d{16}$/);
const refusedBy = (owner: string): unknown => [
  'refused',
  expect.any(Number),
  expect.stringMatching(new RegExp(`^${owner}@\\d{16}$`)),
];

/** With the counter of the slot of the lock. */
function acquire(runner: ScriptRunner, lock: string, owner = 'me'): Promise<Reply> {
  return runScript(runner, ACQUIRE, [`fence{${tagOfSlot(clusterSlot(lock))}}`, lock], [10_000, `${owner}@`]);
}

/** Repeatable, so that a failure can be examined. */
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
    keys.push('', '{}', '{}a', 'a{}{b}', '{{a}}', 'lock:{order:7}', 'lock:{order:7}:queue', 'x'.repeat(5_000));
    keys.push('lock:{Bestellung für Jörg}', 'lock:{鍵}:queue', 'ключ:{a}', '{a}:🔑', 'é'.repeat(5_000), '\ud83d lone');
    const slots = await Promise.all(keys.map((key) => cluster.nodes[0]!.command('CLUSTER', 'KEYSLOT', key)));
    expect(keys.map(clusterSlot)).toEqual(slots);
  });

  it('each slot has a tag, which is in it: the counters of locks are spread like the locks', async () => {
    const slots = Array.from({ length: SLOTS }, (_, slot) => slot);
    const tagged = slots.map((slot) => `lock:fence{${tagOfSlot(slot)}}`);
    expect(tagged.map(clusterSlot)).toEqual(slots);
    const node = cluster.nodes[0]!;
    const some = slots.filter((slot) => slot % 32 === 0);
    const asRedisSays = some.map((slot) => node.command('CLUSTER', 'KEYSLOT', tagged[slot]!));
    expect(await Promise.all(asRedisSays)).toEqual(some);
    expect(new Set(tagged).size).toBe(SLOTS);
  });

  it('the tag of a slot is the same in each process, in whatever order it asks: the first number of that slot', async () => {
    const first: string[] = [];
    for (let number = 0, found = 0; found < SLOTS; number++) {
      const slot = clusterSlot(number.toString(36));
      if (first[slot] === undefined) found++;
      first[slot] ??= number.toString(36);
    }
    vi.resetModules();
    const inAnother = await import('../../lib/stores/redis/client/cluster-slot.js');
    const backwards = first.map((_, index) => SLOTS - 1 - index);
    expect(backwards.map(inAnother.tagOfSlot).reverse()).toEqual(first);
    expect(first.map((_, slot) => tagOfSlot(slot))).toEqual(first);
    // As in docs/protocol.md: another rule would mean another counter.
    expect([clusterSlot('lock:{order:7}'), tagOfSlot(clusterSlot('lock:{order:7}'))]).toEqual([6_368, '46q']);
  });

  it.each([
    ['no prefix', ''],
    ['a prefix', 'app:'],
    ['a prefix with a tag', '{app}:'],
  ])('a lock, its queue and its counter are in one slot with %s of the client', (_name, prefix) => {
    const keys = new LockKeys('lock', 'per-slot', prefix);
    for (const key of ['a', 'order:7', 'Bestellung für Jörg', '鍵', '{', 'a{b}c', 'a}b']) {
      const slot = clusterSlot(prefix + keys.lock(key));
      const others = [keys.queue(key), keys.fence(key), keys.admission(key)];
      expect(others.map((other) => clusterSlot(prefix + other))).toEqual([slot, slot, slot]);
    }
  });

  it('operations of one tick on keys of one slot travel in one call, operations on other slots in their own', async () => {
    const runner = new ScriptRunner(portOf(client), 5_000);
    const keys = Array.from({ length: 90 }, (_, index) => `{${'abc'[index % 3]}}:${index}`);
    const acquireAll = (owner: string) =>
      together(runner, () => Promise.all(keys.map((key) => acquire(runner, key, owner))));
    await acquireAll('first'); // fills the script caches
    await resetCalls();
    expect(await acquireAll('second')).toEqual(keys.map(() => refusedBy('first')));
    // Slots 15495, 3300 and 7365: one of each node; and on the third node the operation that was in flight.
    expect(await evalshas()).toEqual([1, 1, 2]);
  });

  it('a node that hangs costs its own operations one time limit, and those on other nodes nothing', async () => {
    const runner = new ScriptRunner(portOf(client), 300);
    await Promise.all(['{a}:hangs', '{b}:hangs'].map((key) => acquire(runner, key, 'first')));
    const where = await Promise.all(cluster.nodes.map(async (each) => (await each.keys('{a}:hangs')).length));
    const node = cluster.nodes[where.indexOf(1)]!;
    node.pause();
    try {
      const [a, b] = await Promise.allSettled(['{a}:hangs', '{b}:hangs'].map((key) => acquire(runner, key, 'second')));
      expect(a).toMatchObject({ status: 'rejected', reason: { mayHaveRun: true } });
      expect(b).toEqual({ status: 'fulfilled', value: refusedBy('first') });

      const onNode = Array.from({ length: 300 }, (_, index) => `other slot:${index}`).filter(
        (key) => client.slots[clusterSlot(key)]![0] === client.slots[clusterSlot('{a}')]![0],
      );
      expect(onNode.length).toBeGreaterThan(50);
      const late = new Promise((resolve) => setImmediate(resolve, 'not at once'));
      const outcomes = Promise.allSettled(onNode.map((key) => acquire(runner, key, 'second')));
      expect(await Promise.race([outcomes, late])).toEqual(
        onNode.map(() => ({ status: 'rejected', reason: expect.objectContaining({ mayHaveRun: false }) })),
      );
      await expect(acquire(runner, '{b}:more', 'second')).resolves.toEqual(aToken);
    } finally {
      node.resume();
    }
    await until(() => acquire(runner, '{a}:more', 'second').then(Boolean, () => false), {
      what: 'the node serves again',
    });
  });
});
