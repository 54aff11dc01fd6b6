import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { compileLibrary } from '../support/compiled-library.js';
import { Copies } from './explorer/copies.js';
import { DEAD_HOLDERS, planOf, STALE_PLACES, type Fault, type Plan, type Topology } from './explorer/plan.js';
import { shrink } from './explorer/shrink.js';
import { simulate } from './explorer/simulate.js';

const place = { root: fileURLToPath(new URL('../..', import.meta.url)), library: compileLibrary('commonjs') };
const copies = new Copies(place);

/** Short, so that some seeds of each topology fit into each run of the tests: `npm run simulate` has the long runs. */
const SHORT = { seconds: 1, processes: 2, parallel: 2 } as const;
const TINY = { ...SHORT, keys: 1, parallel: 1, features: [] } as const;
const MANY_PERMITS = { seconds: 1, processes: 4, parallel: 4, features: ['permits'] } as const;

describe('The explorer', () => {
  it.each<[Topology, number]>([
    ['one', 1],
    ['redlock-3', 1],
    ['redlock-5', 2],
    ['sentinel', 1],
    ['cluster', 1],
  ])(
    'the explorer finds nothing wrong on %s in seed %i: tokens rise, and nobody holds a lock that another one has [G247]',
    async (topology, seed) => {
      const { violations, figures } = await simulate(planOf(seed, topology, SHORT), copies);
      expect(violations).toEqual([]);
      expect(figures.grants).toBeGreaterThan(20);
    },
  );

  it.each<[Topology, number]>([
    ['one', 6],
    ['sentinel', 8],
    ['cluster', 10],
  ])(
    'the explorer finds nothing wrong on %s in seed %i where locks are shared, and permits held: nobody passes an earlier place, or waits although there is room [G850]',
    async (topology, seed) => {
      const features = ['sets', 'with-lock', 'shared', 'permits'] as const;
      const { violations, marks } = await simulate(planOf(seed, topology, { ...SHORT, keys: 1, features }), copies);
      expect(violations).toEqual([]);
      expect([...marks.keys()]).toEqual(expect.arrayContaining(['readers', 'permits', 'downgraded', 'overstayed']));
    },
  );

  it('replays the same events, with a library that was used before and with one that was not', async () => {
    const plan = planOf(4, 'one', SHORT);
    const hashes: string[] = [];
    for (const each of [copies, copies, new Copies(place, 'own')]) hashes.push((await simulate(plan, each)).hash);
    expect(new Set(hashes).size).toBe(1);
    expect((await simulate(planOf(5, 'one', SHORT), copies)).hash).not.toBe(hashes[0]);
  });

  it('the explorer finds a library that frees the locks of others, and says what is needed for that [G145]', async () => {
    const found = await firstThatFails('release-without-owner-check', TINY, 13);
    const small = (await shrink(found.plan, found.rule, copies))!;
    expect(small.faults.length).toBeLessThan(found.plan.faults.length);
    expect((await simulate(small, copies)).violations).not.toEqual([]);
    expect((await simulate({ ...small, mutant: undefined }, copies)).violations).toEqual([]);
  });

  it.each<[string, string, Partial<Plan>, number, string]>([
    ['passes over the first in its queue', 'served-past-the-head', MANY_PERMITS, 1, 'served before an earlier place'],
    ['counts holders whose time is over', 'expired-holders-count', DEAD_HOLDERS, 2, 'room that nobody was given'],
  ])('finds a library that %s', async (_, mutant, given, seed, rule) => {
    const found = await firstThatFails(mutant, given, seed);
    expect(found.rule).toBe(rule);
  });

  it('finds that a lock is held again within ttl + 2 s when a lagging replica has taken over while eight processes wait, and finds a library in which it is not [G1019]', async () => {
    const plan = planOf(6, 'sentinel', STALE_PLACES);
    expect((await simulate(plan, copies)).violations).toEqual([]);
    const { violations } = await simulate({ ...plan, mutant: 'stale-places-served' }, copies);
    expect(violations.map(({ rule }) => rule)).toEqual(['nobody inside after a server went back']);
  });

  it.each<[what: string, fault: Fault]>([
    [
      'was failed over while no message of a Sentinel reached it',
      { at: 3_527_000, kind: 'pause-server', forUs: 741_000, server: 0 },
    ],
    ['does not answer when it connects', { at: 4_032_000, kind: 'mute', forUs: 804_000, process: 1, server: 0 }],
  ])('finds that locks can be acquired again with node-redis where a master %s', async (_, fault) => {
    vi.stubEnv('REDIS_CLIENT', 'node-redis');
    onTestFinished(() => void vi.unstubAllEnvs());
    const shape = { seconds: 5, processes: 2, keys: 1, parallel: 1, commandTimeoutMs: 2_000, features: [] };
    const plan = planOf(4, 'sentinel', { ...shape, faults: [fault] });
    expect((await simulate(plan, copies)).violations).toEqual([]);
  });

  it('finds no unhandled rejection where a slot moves to a node that refuses everything', async () => {
    const faults: Fault[] = [
      { at: 101_000, kind: 'move-slot', forUs: 659_000, server: 0 },
      { at: 705_000, kind: 'busy', forUs: 656_000, server: 1 },
    ];
    const plan = planOf(10_350, 'cluster', { ...SHORT, seconds: 2, keys: 3, features: ['holds'], faults });
    expect((await simulate(plan, copies)).violations).toEqual([]);
  });

  it('finds that locks can be acquired again where a node of a Cluster was too busy to learn that it is a master, and no longer is one', async () => {
    const faults: Fault[] = [
      { at: 318_000, kind: 'fail-over', forUs: 0, server: 1 },
      { at: 339_000, kind: 'busy', forUs: 777_000, server: 4 },
      { at: 1_404_000, kind: 'fail-over', forUs: 0, server: 4 },
    ];
    const plan = planOf(100_147, 'cluster', {
      ...TINY,
      seconds: 2,
      commandTimeoutMs: 300,
      features: ['with-lock'],
      faults,
    });
    expect((await simulate(plan, copies)).violations).toEqual([]);
  });
});

/** @param from the seed to begin with: it fails with the library as it is; after a change another one may */
async function firstThatFails(mutant: string, given: Partial<Plan>, from: number) {
  for (let seed = from; ; seed++) {
    const plan = planOf(seed, 'one', { ...given, mutant });
    const [violation] = (await simulate(plan, copies)).violations;
    if (violation) return { plan, rule: violation.rule };
  }
}
