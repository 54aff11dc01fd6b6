import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { Worker } from './crew.js';
import { checkHistory, type Terms, type Verdict } from './history-checker.js';
import { nowMs } from './history.js';
import { Journal, readJournals } from './journal.js';
import type { LockParcel } from './library.js';
import { shutOut } from './liveness.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { unleash } from './nemesis.js';
import { ChaosMariaDb, ChaosPostgres, ChaosRedis, type ChaosNode } from './nodes.js';
import { planFaults, type FaultKind, type Topology } from './schedule.js';
import { SHUTDOWN_MS, WAIT_MS } from '../simulation/explorer/application.js';
import type { Feature } from '../simulation/explorer/plan.js';
import { Resource } from '../simulation/explorer/resource.js';

export const WORKERS = 4;
/** For each node of a Redlock, and for a single server: workers, nodes and the nemesis share few cores. */
const COMMAND_TIMEOUT_MS = { single: 300, redlock: 150 };
/** The places of processes that died while they waited stay for 10 s. */
const GONE_AFTER_MS = 12_000;

export interface CellPlan {
  topology: Topology;
  seed: number;
  durationMs: number;
  /** Name of the mutant of the library. */
  mutant?: string;
  fair: boolean;
}

export interface CellResult extends Verdict {
  seconds: number;
  /** Place of the history, if something was wrong with it. */
  history?: string;
}

/** One topology under the faults of one seed, and the verdict on the history. */
export async function runCell(plan: CellPlan): Promise<CellResult> {
  const begin = performance.now();
  const folder = mkdtempSync(join(existsSync('/dev/shm') ? '/dev/shm' : tmpdir(), 'lock-chaos-'));
  const closers: (() => unknown)[] = [];
  try {
    await play(plan, folder, closers);
  } finally {
    for (const close of closers.reverse()) await close();
  }
  const verdict = checkHistory(readJournals(folder), termsOf(plan));
  if (verdict.violations.length === 0) rmSync(folder, { recursive: true, force: true });
  return {
    ...verdict,
    seconds: (performance.now() - begin) / 1_000,
    history: verdict.violations.length === 0 ? undefined : folder,
  };
}

/**
 * If one Redis loses its data, it has lost the lock. A node of a Redlock then does not vote until all locks have ended.
 * A database loses none.
 */
function lossesOf({ nodes, store }: Topology): FaultKind[] {
  return nodes > 1 || store !== 'redis'
    ? []
    : ['flush', 'flush-cohort', 'restart-empty', 'restart-old', 'swap-primary'];
}

/** What the application does besides taking and releasing one lock at a time. */
function featuresOf({ nodes, store }: Topology, isFair: boolean): Feature[] {
  const features: Feature[] = ['sets', 'holds', 'elections', 'aborts', 'careless', 'with-lock'];
  if (nodes > 1) return features;
  if (store !== 'mariadb' && isFair) features.push('fair');
  return [...features, 'parcels', ...(store === 'redis' ? (['shared', 'permits'] as const) : [])];
}

function termsOf({ topology }: CellPlan): Terms {
  const { nodes } = topology;
  // A restarted node votes after the longest ttl; an unconfirmed grant lasts for 2 s.
  const attemptMs = 2 * (nodes === 1 ? COMMAND_TIMEOUT_MS.single : 2 * COMMAND_TIMEOUT_MS.redlock);
  return { losses: lossesOf(topology), livenessMs: 10_000, beatMs: 5_000, answerMs: WAIT_MS + attemptMs + 2_000 };
}

async function play(plan: CellPlan, folder: string, closers: (() => unknown)[]): Promise<void> {
  const { topology, seed, durationMs } = plan;
  const { nodes: count, store } = topology;
  const journal = new Journal(folder, 'nemesis');
  const resource = new Resource((entry) => journal.note(entry));
  const nodes = await Promise.all(
    Array.from({ length: count }, async (_, index) => {
      const node = await startNode(store, folder, `node-${index}`);
      closers.push(() => node.stop());
      return node;
    }),
  );
  const links: TcpProxy[][] = [];
  const workers: Worker[] = [];
  for (let worker = 0; worker < WORKERS; worker++) {
    const own = await Promise.all(nodes.map(({ port }) => TcpProxy.start(port)));
    links.push(own);
    closers.push(() => Promise.all(own.map((link) => link.stop())));
    const terms = {
      worker,
      seed,
      folder,
      store,
      ports: own.map(({ port }) => port),
      mutant: plan.mutant,
      plan: {
        keys: 8,
        parallel: 4,
        processes: WORKERS,
        lapses: 0.08,
        features: featuresOf(topology, plan.fair),
        commandTimeoutMs: count === 1 ? COMMAND_TIMEOUT_MS.single : COMMAND_TIMEOUT_MS.redlock,
      },
    };
    let parcels = worker;
    const onDetached = (parcel: LockParcel) => workers[++parcels % WORKERS]!.adopt(parcel);
    workers.push(new Worker(terms, journal, resource, onDetached));
  }
  closers.push(() => Promise.all(workers.map((worker) => worker.kill())));
  await Promise.all(workers.map((worker) => worker.start()));
  await unleash(planFaults(seed, durationMs, { topology, workers: WORKERS }), { nodes, workers, links }, journal);

  journal.note({ type: 'healed', workers: workers.map(({ number }) => number) });
  for (const worker of workers) worker.healed();
  const calmUntil = nowMs() + termsOf(plan).livenessMs;
  const numbers = workers.map(({ number }) => number);
  while (
    shutOut(
      numbers,
      workers.flatMap(({ calmTurns }) => calmTurns),
    ).length > 0 &&
    nowMs() < calmUntil
  )
    await sleep(20);
  await Promise.all(workers.map((worker) => worker.finish(WAIT_MS + SHUTDOWN_MS + 9_000)));
  await noteWhatIsLeft(nodes, journal);
  const [node] = nodes;
  for (const { key, ...write } of node && 'guardedWrites' in node ? await node.guardedWrites() : [])
    journal.note({ type: 'write', key: `${key} in the database`, ...write, accepted: true, isGuarded: true });
}

function startNode(store: Topology['store'], folder: string, name: string): Promise<ChaosNode> {
  switch (store) {
    case 'redis':
      return ChaosRedis.start(folder, name);
    case 'postgres':
      return ChaosPostgres.start();
    case 'mariadb':
      return ChaosMariaDb.start();
  }
}

async function noteWhatIsLeft(nodes: readonly ChaosNode[], journal: Journal): Promise<void> {
  const deadline = nowMs() + GONE_AFTER_MS;
  for (;;) {
    const left = await Promise.all(nodes.map((node) => node.leftKeys()));
    if (left.every((keys) => keys.length === 0)) return;
    if (nowMs() < deadline) {
      await sleep(50);
      continue;
    }
    left.forEach((keys, node) => keys.forEach((key) => journal.note({ type: 'left-behind', node, key })));
    return;
  }
}
