import { fileURLToPath } from 'node:url';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { compileLibrary } from '../support/compiled-library.js';
import { readArguments } from './explorer/arguments.js';
import { Copies } from './explorer/copies.js';
import { FEATURES, planOf, STALE_PLACES, type Fault, type Plan, type Topology } from './explorer/plan.js';
import { shrink } from './explorer/shrink.js';
import { simulate } from './explorer/simulate.js';

const place = { root: fileURLToPath(new URL('../..', import.meta.url)), library: compileLibrary('commonjs') };
const copies = new Copies(place);

/** Short, so that some seeds of each topology fit into each run of the tests: `npm run simulate` has the long ones. */
const SHORT = { seconds: 1, processes: 2, parallel: 2 } as const;
const TINY = { ...SHORT, keys: 1, parallel: 1, features: [] } as const;

describe('The explorer', () => {
  it.each<[Topology, number]>([
    ['one', 1],
    ['one', 2],
    ['one', 3],
    ['redlock-3', 1],
    ['redlock-5', 2],
    ['sentinel', 1],
    ['cluster', 1],
  ])(
    'the explorer finds nothing wrong on %s in seed %i: tokens rise, and nobody holds what another one has [G247]',
    async (topology, seed) => {
      const { violations, figures } = await simulate(planOf(seed, topology, SHORT), copies);
      expect(violations).toEqual([]);
      expect(figures.grants).toBeGreaterThan(20);
    },
  );

  it.each<[Topology, number]>([
    ['one', 5],
    ['sentinel', 8],
    ['cluster', 10],
  ])(
    'the explorer finds nothing wrong on %s in seed %i where locks are shared, and permits held: nobody passes an earlier place, or waits beside room [G850]',
    async (topology, seed) => {
      const features = ['sets', 'with-lock', 'shared', 'permits'] as const;
      const { violations, marks } = await simulate(planOf(seed, topology, { ...SHORT, keys: 1, features }), copies);
      expect(violations).toEqual([]);
      expect([...marks.keys()]).toEqual(expect.arrayContaining(['readers', 'permits', 'downgraded', 'overstayed']));
    },
  );

  it('has the same happen again, with a library that was used before and with one that was not', async () => {
    const plan = planOf(4, 'one', SHORT);
    const hashes: string[] = [];
    for (const each of [copies, copies, new Copies(place, 'own')]) hashes.push((await simulate(plan, each)).hash);
    expect(new Set(hashes).size).toBe(1);
    expect((await simulate(planOf(5, 'one', SHORT), copies)).hash).not.toBe(hashes[0]);
  });

  it('has no fault changed by one that is left out', () => {
    const { faults } = planOf(6, 'one');
    expect(planOf(6, 'one', { faults: faults.slice(1) })).toEqual({ ...planOf(6, 'one'), faults: faults.slice(1) });
  });

  it('the explorer finds a library that frees the locks of others, and says what is needed for that [G145]', async () => {
    const found = await firstThatFails('release-without-owner-check');
    const small = (await shrink(found.plan, found.rule, copies))!;
    expect(small.faults.length).toBeLessThan(found.plan.faults.length);
    expect((await simulate(small, copies)).violations).not.toEqual([]);
    expect((await simulate({ ...small, mutant: undefined }, copies)).violations).toEqual([]);
  });

  it.each([
    ['passes over the first in its queue', 'served-past-the-head', 'served before an earlier place'],
    ['counts holders whose time is over', 'expired-holders-count', 'room that nobody was given'],
  ])('finds a library that %s', async (_, mutant, rule) => {
    const found = await firstThatFails(mutant, { processes: 4, parallel: 4, features: ['permits'] });
    expect(found.rule).toBe(rule);
  });

  it('finds that a lock is held again within ttl + 2 s when a replica that lags has taken over, though eight processes wait, and a library in which it is not [G1019]', async () => {
    const plan = planOf(6, 'sentinel', STALE_PLACES);
    expect((await simulate(plan, copies)).violations).toEqual([]);
    const { violations } = await simulate({ ...plan, mutant: 'stale-places-served' }, copies);
    expect(violations.map(({ rule }) => rule)).toEqual(['nobody inside after a server went back']);
  });

  it('sets no wall clock back while that would hide from a process that its machine slept', async () => {
    const faults: Fault[] = [
      { at: 95_000, kind: 'pause-amid-hand-over', forUs: 1_421_000, process: 0, server: 0, byUs: 582_000 },
      { at: 720_000, kind: 'suspend', forUs: 451_000, process: 0 },
      { at: 1_167_000, kind: 'isolate', forUs: 545_000, server: 0 },
      { at: 1_915_000, kind: 'jump-wall', forUs: 0, process: 0, byUs: -726_000 },
    ];
    const features = ['holds', 'fair', 'careless', 'shared'] as const;
    const plan = planOf(21_335, 'one', { ...SHORT, seconds: 2, keys: 1, commandTimeoutMs: 300, features, faults });
    expect((await simulate(plan, copies)).violations).toEqual([]);
  });

  it('lets no machine sleep where its wall clock was set back and the process has not looked at it since', async () => {
    const faults: Fault[] = [
      { at: 190_000, kind: 'forget-scripts', forUs: 0, server: 0 },
      { at: 387_000, kind: 'force-release', forUs: 0, process: 0 },
      { at: 1_165_000, kind: 'pause-amid-hand-over', forUs: 1_469_000, process: 0, server: 0, byUs: 652_000 },
      { at: 4_283_000, kind: 'jump-wall', forUs: 0, process: 0, byUs: -2_543_000 },
      { at: 4_403_000, kind: 'suspend', forUs: 597_000, process: 0 },
    ];
    const features = ['sets', 'holds', 'elections', 'fair', 'shared'] as const;
    const shape = { seconds: 5, processes: 2, keys: 4, parallel: 3, commandTimeoutMs: 300 };
    expect((await simulate(planOf(118_685, 'one', { ...shape, features, faults }), copies)).violations).toEqual([]);
  });

  it('finds nothing wrong where a waiter is served by a better estimate of when it came than its place has', async () => {
    const faults: Fault[] = [
      { at: 557_000, kind: 'slow-requests', forUs: 512_000, process: 0, server: 0, byUs: 114_000 },
      { at: 1_351_000, kind: 'kill', forUs: 179_000, process: 2 },
      { at: 1_819_000, kind: 'oom', forUs: 336_000, server: 0 },
    ];
    const features = ['holds', 'elections', 'fair', 'careless', 'with-lock', 'parcels', 'permits'] as const;
    const shape = { seconds: 3, processes: 3, keys: 3, parallel: 4, commandTimeoutMs: 2_000 };
    expect((await simulate(planOf(40_573, 'one', { ...shape, features, faults }), copies)).violations).toEqual([]);
  });

  it('knows the tokens of readers who are back with the old data of a server', async () => {
    const faults: Fault[] = [
      { at: 100_000, kind: 'crash-empty', forUs: 166_000, server: 0 },
      { at: 424_000, kind: 'half-open-at-server', forUs: 0, process: 1, server: 0 },
      { at: 541_000, kind: 'slow-requests', forUs: 275_000, process: 0, server: 0, byUs: 36_000 },
      { at: 802_000, kind: 'close', forUs: 233_000, process: 0 },
      { at: 1_242_000, kind: 'busy', forUs: 540_000, server: 0 },
      { at: 1_411_000, kind: 'slow-requests', forUs: 115_000, process: 0, server: 0, byUs: 64_000 },
      { at: 1_978_000, kind: 'crash-old', forUs: 274_000, server: 0, byUs: 376_000 },
    ];
    const features = FEATURES.filter((name) => name !== 'fair' && name !== 'with-lock');
    const shape = { seconds: 3, processes: 2, keys: 2, parallel: 4, commandTimeoutMs: 2_000 };
    expect((await simulate(planOf(23_732, 'one', { ...shape, features, faults }), copies)).violations).toEqual([]);
  });

  it('knows who waits in the old data of a server, and is granted again what it was granted in the meantime', async () => {
    const faults: Fault[] = [
      { at: 30_000, kind: 'mute', forUs: 277_000, process: 0, server: 0 },
      { at: 608_000, kind: 'slow-replies', forUs: 1_371_000, process: 3, server: 0, byUs: 55_000 },
      { at: 678_000, kind: 'flush', forUs: 0, server: 0 },
      { at: 1_395_000, kind: 'hold-replies', forUs: 864_000, process: 1, server: 0 },
      { at: 2_034_000, kind: 'hold-requests', forUs: 905_000, process: 2, server: 0 },
      { at: 2_338_000, kind: 'hold-replies', forUs: 2_031_000, process: 3, server: 0 },
      { at: 4_088_000, kind: 'pause', forUs: 656_000, process: 2 },
      { at: 4_990_000, kind: 'crash-old', forUs: 10_000, server: 0, byUs: 824_000 },
    ];
    const features = ['fair', 'aborts', 'careless', 'with-lock', 'parcels', 'shared'] as const;
    const shape = { seconds: 5, processes: 4, keys: 3, parallel: 4, commandTimeoutMs: 300 };
    expect((await simulate(planOf(43_665, 'one', { ...shape, features, faults }), copies)).violations).toEqual([]);
  });

  it('counts a lock as lost that has expired early in the old data of a server', async () => {
    const faults: Fault[] = [{ at: 782_000, kind: 'crash-old', forUs: 191_000, server: 0, byUs: 215_000 }];
    const features = ['sets', 'elections', 'fair', 'careless', 'shared', 'permits'] as const;
    const shape = { seconds: 1, processes: 4, keys: 2, parallel: 2, commandTimeoutMs: 2_000 };
    expect((await simulate(planOf(43_365, 'one', { ...shape, features, faults }), copies)).violations).toEqual([]);
  });

  it('counts a lock as taken by force though the process that took it was killed before it knew', async () => {
    const faults: Fault[] = [
      { at: 79_000, kind: 'pause-server', forUs: 706_000, server: 0 },
      { at: 173_000, kind: 'close', forUs: 193_000, process: 0 },
      { at: 307_000, kind: 'kill', forUs: 347_000, process: 1 },
      { at: 451_000, kind: 'slow-replies', forUs: 1_090_000, process: 1, server: 0, byUs: 58_000 },
      { at: 824_000, kind: 'force-release', forUs: 0, process: 1 },
      { at: 1_039_000, kind: 'kill', forUs: 209_000, process: 1 },
    ];
    const features = ['holds', 'elections', 'aborts', 'parcels', 'permits'] as const;
    const shape = { seconds: 2, processes: 2, keys: 1, parallel: 1, commandTimeoutMs: 2_000 };
    expect((await simulate(planOf(43_868, 'one', { ...shape, features, faults }), copies)).violations).toEqual([]);
  });

  it('counts a lock as had since before the server handed it over, though the call that begins with it asked later', async () => {
    const faults: Fault[] = [
      { at: 190_000, kind: 'half-open-subscriber', forUs: 0, process: 0, server: 0 },
      { at: 603_000, kind: 'force-release', forUs: 0, process: 0 },
      { at: 1_019_000, kind: 'lose-reply', forUs: 0, process: 1, server: 0 },
      { at: 1_052_000, kind: 'force-release', forUs: 0, process: 1 },
      { at: 1_206_000, kind: 'force-release', forUs: 0, process: 0 },
      { at: 1_634_000, kind: 'pause-amid-hand-over', forUs: 1_473_000, process: 1, server: 0, byUs: 551_000 },
      { at: 1_795_000, kind: 'force-release', forUs: 0, process: 0 },
      { at: 2_176_000, kind: 'busy', forUs: 524_000, server: 0 },
      { at: 2_328_000, kind: 'force-release', forUs: 0, process: 0 },
      { at: 2_895_000, kind: 'force-release', forUs: 0, process: 1 },
      { at: 3_333_000, kind: 'flush', forUs: 0, server: 0 },
      { at: 3_807_000, kind: 'flush', forUs: 0, server: 0 },
    ];
    const features = ['sets', 'holds', 'elections', 'careless', 'parcels', 'shared', 'permits'] as const;
    const shape = { seconds: 5, processes: 2, keys: 3, parallel: 3, commandTimeoutMs: 2_000 };
    const { violations } = await simulate(planOf(54_256, 'one', { ...shape, features, faults }), copies);
    expect(violations).toEqual([]);
  });

  it.each<[string, Plan]>([
    [
      'a pause',
      planOf(70_470, 'one', {
        seconds: 3,
        processes: 2,
        keys: 1,
        parallel: 3,
        commandTimeoutMs: 2_000,
        features: ['elections', 'fair', 'shared'],
        faults: [
          { at: 227_000, kind: 'pause-amid-hand-over', forUs: 1_432_000, process: 0, server: 0, byUs: 571_000 },
          { at: 274_000, kind: 'kill', forUs: 369_000, process: 0 },
          { at: 671_000, kind: 'flush', forUs: 0, server: 0 },
          { at: 825_000, kind: 'force-release', forUs: 0, process: 1 },
          { at: 1_846_000, kind: 'force-release', forUs: 0, process: 0 },
        ],
      }),
    ],
    [
      'slow requests',
      planOf(70_573, 'one', {
        seconds: 4,
        processes: 4,
        keys: 3,
        parallel: 4,
        commandTimeoutMs: 2_000,
        features: ['elections', 'fair', 'aborts', 'careless', 'with-lock', 'shared', 'permits'],
        faults: [
          { at: 409_000, kind: 'hold', forUs: 1_214_000, process: 0, server: 0 },
          { at: 459_000, kind: 'force-release', forUs: 0, process: 2 },
          { at: 571_000, kind: 'slow-requests', forUs: 558_000, process: 2, server: 0, byUs: 144_000 },
          { at: 1_011_000, kind: 'loading', forUs: 786_000, server: 0 },
          { at: 1_033_000, kind: 'pause-amid-hand-over', forUs: 1_446_000, process: 1, server: 0, byUs: 585_000 },
          { at: 2_032_000, kind: 'force-release', forUs: 0, process: 1 },
          { at: 2_516_000, kind: 'force-release', forUs: 0, process: 1 },
        ],
      }),
    ],
  ])('finds no call that begins with a lock which it lost in %s while node-redis had yet to send', async (_, plan) => {
    vi.stubEnv('REDIS_CLIENT', 'node-redis');
    onTestFinished(() => void vi.unstubAllEnvs());
    expect((await simulate(plan, copies)).violations).toEqual([]);
  });

  it('finds no room that nobody was given where a server is read-only, and nobody can be given any', async () => {
    const faults: Fault[] = [
      { at: 82_000, kind: 'half-open-at-client', forUs: 0, process: 0, server: 0 },
      { at: 324_000, kind: 'readonly', forUs: 1_188_000, server: 0 },
      { at: 850_000, kind: 'close', forUs: 247_000, process: 2 },
    ];
    const shape = { seconds: 2, processes: 4, keys: 3, parallel: 4, commandTimeoutMs: 300 };
    const plan = planOf(103_280, 'one', { ...shape, features: ['elections', 'aborts', 'permits'], faults });
    expect((await simulate(plan, copies)).violations).toEqual([]);
  });

  it.each<[what: string, fault: Fault]>([
    [
      'was failed over while no message of a Sentinel reached it',
      { at: 3_527_000, kind: 'pause-server', forUs: 741_000, server: 0 },
    ],
    ['does not answer when it connects', { at: 4_032_000, kind: 'mute', forUs: 804_000, process: 1, server: 0 }],
  ])('finds that locks are had again with node-redis where a master %s', async (_, fault) => {
    vi.stubEnv('REDIS_CLIENT', 'node-redis');
    onTestFinished(() => void vi.unstubAllEnvs());
    const shape = { seconds: 5, processes: 2, keys: 1, parallel: 1, commandTimeoutMs: 2_000, features: [] };
    const plan = planOf(4, 'sentinel', { ...shape, faults: [fault] });
    expect((await simulate(plan, copies)).violations).toEqual([]);
  });

  it('finds nothing wrong where a server accepts connections and never answers on them', async () => {
    const faults: Fault[] = [{ at: 100_000, kind: 'mute', forUs: 300_000, process: 1, server: 0 }];
    const plan = planOf(1, 'one', { ...TINY, faults });
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

  it('finds that locks are had again where a node of a Cluster was too busy to hear that it is a master, and is none any more', async () => {
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

describe('The command line of the explorer', () => {
  it.each([
    [['--topology', 'two'], '--topology does not know "two": expected one, redlock-3, redlock-5, sentinel, cluster.'],
    [['--seed', 'x'], '--seed is a whole number: got "x".'],
    [['--trace'], '--trace needs --seed'],
    [['--mutant', 'none'], '--mutant does not know "none"'],
    [['--twice', '--mutants'], '--twice and --mutants exclude each other.'],
  ])('refuses %j', (args, message) => {
    expect(() => readArguments(args)).toThrow(message);
  });
});

async function firstThatFails(mutant: string, given: Partial<Plan> = TINY): Promise<{ plan: Plan; rule: string }> {
  for (let seed = 1; ; seed++) {
    const plan = planOf(seed, 'one', { ...given, mutant });
    const [violation] = (await simulate(plan, copies)).violations;
    if (violation) return { plan, rule: violation.rule };
  }
}
