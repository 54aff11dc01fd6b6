import { randomOf } from '../support/random.js';

/** The store of the locks. */
export interface Topology {
  store: 'redis' | 'postgres' | 'mariadb';
  nodes: number;
}

export const TOPOLOGIES = {
  single: { store: 'redis', nodes: 1 },
  'redlock-3': { store: 'redis', nodes: 3 },
  'redlock-5': { store: 'redis', nodes: 5 },
  postgres: { store: 'postgres', nodes: 1 },
  mariadb: { store: 'mariadb', nodes: 1 },
} as const satisfies Record<string, Topology>;
export type TopologyId = keyof typeof TOPOLOGIES;

export interface PlannedFault {
  /** From the begin of the run, in milliseconds. */
  atMs: number;
  kind: FaultKind;
  node?: number;
  worker?: number;
  /** Its duration; 0: over at once. */
  forMs: number;
  /** How much slower a connection is; or how old the data of a node is when it comes back. */
  byMs?: number;
}

interface Cast {
  topology: Topology;
  workers: number;
}

type Target = 'node' | 'worker' | 'link';

interface Habit {
  target: Target;
  /**
   * How frequent it is compared to the others: for one Redis, the nodes of a Redlock, PostgreSQL, and MariaDB, on which
   * no process listens.
   */
  weight: [single: number, redlock: number, postgres: number, mariadb: number];
  forMs: [min: number, max: number];
  byMs?: [min: number, max: number];
}

/** The faults of the nemesis. */
const HABITS = {
  'restart-empty': { target: 'node', weight: [1, 3, 0, 0], forMs: [0, 300] },
  'restart-with-data': { target: 'node', weight: [1, 1, 2, 2], forMs: [0, 300] },
  'restart-old': { target: 'node', weight: [1, 1, 0, 0], forMs: [0, 300], byMs: [200, 800] },
  'swap-primary': { target: 'node', weight: [1, 0, 0, 0], forMs: [0, 0] },
  'stop-node': { target: 'node', weight: [2, 3, 2, 2], forMs: [50, 1_200] },
  flush: { target: 'node', weight: [1, 1, 0, 0], forMs: [0, 0] },
  'flush-cohort': { target: 'link', weight: [1, 1, 0, 0], forMs: [0, 0] },
  'force-release': { target: 'worker', weight: [2, 1, 2, 2], forMs: [0, 0] },
  'half-open': { target: 'link', weight: [1, 1, 1, 0], forMs: [0, 0] },
  'forget-scripts': { target: 'node', weight: [1, 1, 0, 0], forMs: [0, 0] },
  'stop-worker': { target: 'worker', weight: [5, 3, 5, 5], forMs: [50, 2_000] },
  'kill-worker': { target: 'worker', weight: [2, 1, 2, 2], forMs: [0, 300] },
  cut: { target: 'link', weight: [3, 6, 3, 3], forMs: [0, 1_200] },
  isolate: { target: 'node', weight: [1, 2, 1, 1], forMs: [0, 800] },
  'slow-requests': { target: 'link', weight: [2, 2, 2, 2], forMs: [200, 1_500], byMs: [20, 250] },
  'slow-replies': { target: 'link', weight: [4, 4, 4, 4], forMs: [200, 1_500], byMs: [20, 250] },
  silence: { target: 'link', weight: [0, 0, 2, 2], forMs: [0, 0] },
  terminate: { target: 'link', weight: [0, 0, 3, 3], forMs: [0, 0] },
  'only-read': { target: 'node', weight: [0, 0, 1, 1], forMs: [0, 600] },
} satisfies Record<string, Habit>;
export type FaultKind = keyof typeof HABITS;
export const FAULT_KINDS = Object.keys(HABITS) as FaultKind[];

const GAP_MS = [60, 360] as const;
/** The time between restarts of nodes, because a lock should exist most of the time, in the order of `weight`. */
const RESTART_GAP_MS = [2_000, 4_000, 3_000, 4_000] as const;

/**
 * A Redlock is in danger when only a bare majority has a lock, and one of these nodes loses its data. So it happens
 * often that one node restarts empty while another one is unreachable.
 */
const AMID_ISOLATION = 0.6;

/**
 * The counters of a node that restarts with old data also matter when it completes a majority with lagging nodes. So it
 * happens often that these nodes are unreachable before, and the others after, as long as the node has no vote.
 */
const AMONG_LAGGARDS = 0.6;
const ABSTAINS_MS = 6_500;

/**
 * The faults of the nemesis, with times and targets, from the seed alone. No target has two faults at a time, and all
 * faults end in time.
 */
export function planFaults(
  seed: number,
  durationMs: number,
  { topology: { nodes, store }, workers }: Cast,
): PlannedFault[] {
  const random = randomOf(seed);
  const between = ([min, max]: readonly [number, number]) => Math.round(min + random() * (max - min));
  const column = store === 'mariadb' ? 3 : store === 'postgres' ? 2 : nodes === 1 ? 0 : 1;
  const kinds = FAULT_KINDS.flatMap((kind) => Array.from({ length: HABITS[kind].weight[column] }, () => kind));
  const freeFrom = new Map<string, number>();
  const faults: PlannedFault[] = [];
  let restartFrom = 0;
  for (let atMs = between(GAP_MS); atMs < durationMs; atMs += between(GAP_MS)) {
    const kind = kinds[Math.floor(random() * kinds.length)]!;
    const { target, forMs, byMs }: Habit = HABITS[kind];
    const fault: PlannedFault = { atMs, kind, forMs: Math.min(between(forMs), durationMs - atMs) };
    if (target !== 'worker') fault.node = Math.floor(random() * nodes);
    if (target !== 'node') fault.worker = Math.floor(random() * workers);
    if (byMs) fault.byMs = between(byMs);
    const isRestart = kind.startsWith('restart') || kind === 'only-read';
    // A node of a Redlock that has lost its data has no vote for as long as a restarted node.
    const mustRest = isRestart || (nodes > 1 && kind.startsWith('flush'));
    const id = `${fault.node} ${fault.worker}`;
    if ((mustRest && atMs < restartFrom) || atMs < (freeFrom.get(id) ?? 0)) continue;
    // Starting a process takes a while, too.
    freeFrom.set(id, atMs + fault.forMs + (isRestart || kind === 'kill-worker' || kind === 'swap-primary' ? 500 : 50));
    if (mustRest) restartFrom = atMs + RESTART_GAP_MS[column];
    faults.push(fault);
    if (kind === 'restart-old' && nodes > 1 && random() < AMONG_LAGGARDS && durationMs - atMs > 1.5 * ABSTAINS_MS) {
      const laggingMs = between([300, 800]);
      fault.byMs = laggingMs;
      fault.atMs += laggingMs;
      const others = Array.from({ length: nodes - 1 }, (_, index) => (fault.node! + 1 + index) % nodes);
      others.forEach((node, index) => {
        const lags = index < others.length / 2;
        const [from, forMs] = lags ? [atMs, laggingMs] : [fault.atMs, ABSTAINS_MS];
        faults.push({ atMs: from, kind: 'isolate', node, forMs });
      });
      restartFrom = fault.atMs + ABSTAINS_MS;
      freeFrom.set(id, restartFrom);
    }
    if (kind !== 'restart-empty' || nodes === 1 || random() > AMID_ISOLATION) continue;
    const other = (fault.node! + 1 + Math.floor(random() * (nodes - 1))) % nodes;
    const isolatedMs = Math.min(between([400, 900]), durationMs - atMs);
    faults.push({ atMs, kind: 'isolate', node: other, forMs: isolatedMs });
    fault.atMs += Math.round(isolatedMs * 0.7);
    fault.forMs = Math.min(fault.forMs, 50);
    freeFrom.set(id, fault.atMs + fault.forMs + 500);
  }
  // The last fault does not end by itself.
  const other = store === 'redis' ? 'swap-primary' : 'silence';
  const isOther = (nodes === 1 && random() < 0.5) || store === 'mariadb';
  const lasting = isOther ? other : 'half-open';
  const worker = Math.floor(random() * workers);
  faults.push({ atMs: durationMs, kind: lasting, node: 0, ...(lasting !== 'swap-primary' && { worker }), forMs: 0 });
  return faults.sort((a, b) => a.atMs - b.atMs);
}

export function describeFault({ atMs, kind, node, worker, forMs, byMs }: PlannedFault): string {
  const whom = [node === undefined ? '' : ` n${node}`, worker === undefined ? '' : ` w${worker}`].join('');
  const by = byMs === undefined ? '' : ` +${byMs}`;
  return `${(atMs / 1_000).toFixed(2)} ${kind}${whom}${by}${forMs === 0 ? '' : ` ${forMs} ms`}`;
}
