import { Scheduler } from '../scheduler.js';

/** The servers of a simulation, and their number. If they are replicated, half of them are replicas. */
export const TOPOLOGIES = {
  one: { kind: 'one', servers: 1 },
  'redlock-3': { kind: 'redlock', servers: 3 },
  'redlock-5': { kind: 'redlock', servers: 5 },
  sentinel: { kind: 'sentinel', servers: 2 },
  cluster: { kind: 'cluster', servers: 6 },
} as const;
export type Topology = keyof typeof TOPOLOGIES;
type Kind = (typeof TOPOLOGIES)[Topology]['kind'];

interface Habit {
  readonly target: 'process' | 'server' | 'link';
  /** The topologies on which it exists, if not on all. */
  readonly only?: readonly Kind[];
  /**
   * Its duration, in milliseconds: the shortest and the longest.
   * @default it is over at once
   */
  readonly lastsMs?: readonly [number, number];
  /** By how much, in milliseconds. */
  readonly byMs?: readonly [number, number];
}

/** The possible faults. */
const HABITS = {
  pause: { target: 'process', lastsMs: [20, 2_000] },
  block: { target: 'process', lastsMs: [10, 900] },
  kill: { target: 'process', lastsMs: [0, 400] },
  // A shorter one cannot be told from rounding: see `Clock` of lib/core/time.
  suspend: { target: 'process', lastsMs: [250, 3_000] },
  'jump-wall': { target: 'process', byMs: [-3_000, 3_000] },
  'slow-requests': { target: 'link', lastsMs: [100, 1_500], byMs: [20, 250] },
  'slow-replies': { target: 'link', lastsMs: [100, 1_500], byMs: [20, 250] },
  hold: { target: 'link', lastsMs: [20, 2_500] },
  'hold-requests': { target: 'link', lastsMs: [20, 2_500] },
  'hold-replies': { target: 'link', lastsMs: [20, 2_500] },
  sever: { target: 'link', lastsMs: [0, 1_200] },
  refuse: { target: 'link', lastsMs: [50, 1_500] },
  mute: { target: 'link', lastsMs: [50, 1_500] },
  'lose-reply': { target: 'link' },
  // By so much that the grant has less time left than the longest lease would have.
  'pause-amid-hand-over': { target: 'link', lastsMs: [1_420, 1_475], byMs: [520, 720] },
  'half-open-at-server': { target: 'link' },
  'half-open-at-client': { target: 'link' },
  'half-open-subscriber': { target: 'link' },
  isolate: { target: 'server', lastsMs: [50, 1_000] },
  'pause-server': { target: 'server', lastsMs: [20, 1_500] },
  'crash-kept': { target: 'server', lastsMs: [0, 400] },
  'crash-empty': { target: 'server', lastsMs: [0, 400] },
  'crash-old': { target: 'server', lastsMs: [0, 400], byMs: [100, 900] },
  flush: { target: 'server' },
  'forget-scripts': { target: 'server' },
  oom: { target: 'server', lastsMs: [50, 800] },
  loading: { target: 'server', lastsMs: [50, 800] },
  readonly: { target: 'server', lastsMs: [50, 1_200] },
  noscript: { target: 'server', lastsMs: [50, 800] },
  busy: { target: 'server', lastsMs: [50, 800] },
  // A clock that is behind may repeat tokens that a replica did not know when it became a primary.
  'jump-clock': { target: 'server', only: ['one', 'redlock'], byMs: [-400, 1_500] },
  burst: { target: 'process' },
  'flush-amid-burst': { target: 'link' },
  'force-release': { target: 'process' },
  close: { target: 'process', lastsMs: [0, 400] },
  'fail-over': { target: 'server', only: ['sentinel', 'cluster'] },
  'move-slot': { target: 'server', only: ['cluster'], lastsMs: [50, 800] },
} as const satisfies Record<string, Habit>;
export type FaultKind = keyof typeof HABITS;

/** While a slot moves, its servers stay the same: otherwise somebody would have to find out which keys are where. */
const NOT_WHILE_SLOTS_MOVE: readonly FaultKind[] = [
  'fail-over',
  'pause-server',
  'crash-kept',
  'crash-empty',
  'crash-old',
];

/** The faults by which a server may lose locks that it has granted. */
export const LOSSES: readonly FaultKind[] = ['crash-empty', 'crash-old', 'flush', 'flush-amid-burst', 'jump-clock'];

/** The faults after which a node of a Redlock does not know what it has granted. */
const FORGETTING: readonly FaultKind[] = ['crash-empty', 'crash-old', 'flush'];
/** The faults that often miss their target. */
const SELDOM: readonly FaultKind[] = ['pause-amid-hand-over', 'force-release'];
/** How often that happens while others are isolated. */
const AMID_ISOLATION = 0.5;

/** What the application does besides taking and releasing one lock at a time. */
export const FEATURES = [
  'sets',
  'holds',
  'elections',
  'fair',
  'aborts',
  'careless',
  'with-lock',
  'parcels',
  'shared',
  'permits',
  'notes',
] as const;
/** The activities that a Redlock does not support. */
const NOT_ON_REDLOCK: readonly Feature[] = ['fair', 'parcels', 'shared', 'permits'];
export type Feature = (typeof FEATURES)[number];

/** A fault, as plain data: it can be printed, left out, and repeated. */
export interface Fault {
  /** In microseconds since faults begin. */
  readonly at: number;
  readonly kind: FaultKind;
  /** Its duration, in microseconds; 0: it is over at once. */
  readonly forUs: number;
  /** The number of the process, or of the process of the link. */
  readonly process?: number;
  /** The number of the server, or of the server of the link. */
  readonly server?: number;
  /** Its size: how much slower a link is, how far a clock jumps, how old data is. In microseconds. */
  readonly byUs?: number;
}

/** Everything that decides what happens in a simulation. */
export interface Plan {
  readonly seed: number;
  readonly topology: Topology;
  /** How long there are faults. */
  readonly seconds: number;
  readonly processes: number;
  readonly keys: number;
  /** How many calls each process has under way. */
  readonly parallel: number;
  /** The option of the library, in milliseconds. */
  readonly commandTimeoutMs: number;
  readonly features: readonly Feature[];
  readonly faults: readonly Fault[];
  /** Name of the mutant of test/chaos that replaces the library. */
  readonly mutant?: string;
}

/** For one Redis, and for each node of a Redlock. */
const COMMAND_TIMEOUTS_MS = { others: [300, 2_000], redlock: [100, 200] };
/** The time between two faults, in milliseconds: the mean of a seed is one of these. */
const GAPS_MS = [120, 250, 800];
/**
 * After one of its nodes lost its data, a Redlock has no vote of it for this time: otherwise it might never have a
 * majority.
 */
const REST_US = { others: 400_000, redlock: 2_500_000 };

/** Many processes wait for one lock when a lagging replica takes over: it has places of attempts that have ended. */
export const STALE_PLACES: Partial<Plan> = {
  seconds: 6,
  processes: 8,
  keys: 1,
  parallel: 1,
  commandTimeoutMs: 300,
  features: [],
  faults: [{ at: 1_000_000, kind: 'fail-over', forUs: 0, server: 0 }],
};

/** Many calls want permits of one lock, and some holders are killed, whose time ends in the store. */
export const DEAD_HOLDERS: Partial<Plan> = {
  seconds: 2,
  processes: 4,
  keys: 1,
  parallel: 4,
  features: ['permits'],
  faults: [0, 1, 2, 3, 0, 1].map((process, at) => ({
    at: 150_000 + at * 300_000,
    kind: 'kill',
    forUs: 200_000,
    process,
  })),
};

/** The plan of a seed: it depends on the seed alone, before anything runs. */
export function planOf(seed: number, topology: Topology, given: Partial<Plan> = {}): Plan {
  const random = new Scheduler(`${seed}`).stream(`plan of ${topology}`);
  const between = (least: number, most: number) => least + Math.floor(random() * (most - least + 1));
  const plan = {
    seed,
    topology,
    seconds: 5,
    processes: between(2, 4),
    keys: between(1, 4),
    parallel: between(1, 4),
    commandTimeoutMs: COMMAND_TIMEOUTS_MS[isRedlock(topology) ? 'redlock' : 'others'][between(0, 1)]!,
    features: FEATURES.filter(() => random() < 0.5).filter(
      (name) => !isRedlock(topology) || !NOT_ON_REDLOCK.includes(name),
    ),
    ...given,
  };
  return { ...plan, faults: given.faults ?? faultsOf(plan) };
}

export function isRedlock(topology: Topology): boolean {
  return TOPOLOGIES[topology].kind === 'redlock';
}

function kindsOn(topology: Topology): FaultKind[] {
  const { kind } = TOPOLOGIES[topology];
  const all = Object.entries(HABITS) as [FaultKind, Habit][];
  return all.flatMap(([name, { only }]) => ((only?.includes(kind) ?? true) ? [name] : []));
}

/** The kinds of faults that happen in a plan. */
export function kindsOf({ faults }: Pick<Plan, 'faults'>): FaultKind[] {
  return [...new Set(faults.map(({ kind }) => kind))].sort();
}

function faultsOf({ seed, topology, seconds, processes }: Omit<Plan, 'faults'>): Fault[] {
  const random = new Scheduler(`${seed}`).stream(`faults of ${topology}`);
  const { servers } = TOPOLOGIES[topology];
  const between = (least: number, most: number) => least + Math.floor(random() * (most - least + 1));
  const pick = <T>(list: readonly T[]): T => list[between(0, list.length - 1)]!;
  const some = kindsOn(topology).filter((kind) => random() < (SELDOM.includes(kind) ? 0.8 : 0.4));
  const fitting = some.includes('move-slot') ? some.filter((kind) => !NOT_WHILE_SLOTS_MOVE.includes(kind)) : some;
  const kinds: readonly FaultKind[] = fitting.length > 0 ? fitting : ['kill'];
  const drawn = kinds.flatMap((kind) => Array.from({ length: SELDOM.includes(kind) ? 4 : 1 }, () => kind));
  const gapMs = pick(GAPS_MS);
  const endUs = seconds * 1e6;
  const restUs = REST_US[isRedlock(topology) ? 'redlock' : 'others'];
  const loses = kinds.some((kind) => LOSSES.includes(kind) && kind !== 'jump-clock');
  const freeFrom = new Map<string, number>();
  const faults: Fault[] = [];
  let restFrom = 0;
  for (let at = between(20, gapMs) * 1_000; at < endUs; at += between(20, 2 * gapMs) * 1_000) {
    const kind = pick(drawn);
    const { target, lastsMs: [leastMs, mostMs] = [0, 0], byMs }: Habit = HABITS[kind];
    const process = target === 'server' ? undefined : between(0, processes - 1);
    const server = target === 'process' ? undefined : between(0, servers - 1);
    const forUs = Math.min(between(leastMs, mostMs) * 1_000, endUs - at);
    const byUs = byMs && byOf(kind, between(...byMs) * 1_000, loses);
    const whom = `${process} ${server}`;
    const mustRest = LOSSES.includes(kind) || kind === 'crash-kept';
    if (forUs < leastMs * 1_000) continue;
    if (at < (freeFrom.get(whom) ?? 0) || (mustRest && at < restFrom)) continue;
    freeFrom.set(whom, at + forUs + (byUs !== undefined && kind === 'crash-old' ? byUs : 0) + 50_000);
    if (mustRest) restFrom = at + restUs;
    // A Redlock is in danger when only a bare majority has a lock, and one of these nodes loses its data.
    if (isRedlock(topology) && FORGETTING.includes(kind) && random() < AMID_ISOLATION)
      faults.push(...isolations(at, server!, servers, between(100, 900) * 1_000));
    faults.push({
      at,
      kind,
      forUs,
      ...(process !== undefined && { process }),
      ...(server !== undefined && { server }),
      ...(byUs !== undefined && { byUs }),
    });
  }
  // If nothing else follows, only a call that waits for messages notices it.
  if (kinds.includes('half-open-subscriber'))
    faults.push({
      at: endUs,
      kind: 'half-open-subscriber',
      forUs: 0,
      process: between(0, processes - 1),
      server: between(0, servers - 1),
    });
  return faults.sort((a, b) => a.at - b.at);
}

/** As many servers as may be missing are unreachable, until just before another one loses its data. */
function isolations(at: number, server: number, servers: number, forUs: number): Fault[] {
  return Array.from({ length: (servers - 1) / 2 }, (_, index) => ({
    at: Math.max(0, at - forUs),
    kind: 'isolate',
    forUs: Math.min(at, forUs),
    server: (server + 1 + index) % servers,
  }));
}

/**
 * A clock that is set back on a server that forgets its counters may repeat tokens, which nothing can prevent: in that
 * case clocks are only set ahead.
 */
function byOf(kind: FaultKind, byUs: number, loses: boolean): number {
  return kind === 'jump-clock' && loses ? Math.abs(byUs) : byUs;
}

export function describeFault({ at, kind, forUs, process, server, byUs }: Fault): string {
  const whom = [process === undefined ? '' : ` process ${process}`, server === undefined ? '' : ` server ${server}`];
  const by = byUs === undefined ? '' : ` by ${byUs / 1_000} ms`;
  const lasting = forUs === 0 ? '' : ` for ${forUs / 1_000} ms`;
  return `${(at / 1e6).toFixed(3)} s ${kind}${whom.join('')}${by}${lasting}`;
}
