import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { provideRedisServer } from '../../servers/find-redis-server.js';
import { providePostgres } from '../../servers/find-postgres.js';
import { readArguments, USAGE, type Settings } from './arguments.js';
import { ALL_MUTANTS } from './all-mutants.js';
import { runCell, WORKERS, type CellPlan } from './cell.js';
import type { FaultKind } from './history.js';
import { complaintsOf, tableOf, type Row } from './report.js';
import { describeFault, planFaults } from './schedule.js';
import { TOPOLOGIES, type Topology, type TopologyId } from './topologies.js';

interface Place {
  root: string;
}

/** @returns the exit code: 1 when something was wrong, or when a mutant was not caught */
export async function main(args: string[], place: Place): Promise<number> {
  let settings: Settings;
  try {
    settings = readArguments(args);
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    return 2;
  }
  if (settings.help) {
    console.log(USAGE);
    return 0;
  }
  if (!existsSync(join(place.root, 'dist/esm'))) {
    console.error('There is no built library: npm run build');
    return 2;
  }
  process.env.REDIS_SERVER = (await provideRedisServer()).path;
  process.env.POSTGRES_SERVER = await providePostgres();
  return settings.mutants.length > 0 ? runMutants(settings, place) : runCells(settings, place);
}

async function runCells(settings: Settings, place: Place): Promise<number> {
  const { topologies, contestants, seeds, seconds, fair } = settings;
  const durationMs = (seconds * 1_000) / (topologies.length * contestants.length * seeds.length);
  const rows: Row[] = [];
  for (const seed of seeds) {
    for (const topology of topologies) {
      announce(topology, seed, durationMs);
      if (settings.schedule) continue;
      for (const contestant of contestants) {
        const { nodes, store } = TOPOLOGIES[topology];
        if (store !== 'redis' && contestant !== 'library') continue; // the others know Redis only
        const options = fair && nodes === 1 && store !== 'mariadb' ? { fair } : {};
        const result = await runCell({ ...planOf(topology, place), contestant, seed, durationMs, options });
        rows.push({ topology, contestant, seed, result });
        const { operations, faults, readers, permits, downgraded, adopted, overstayed } = result.figures;
        const verdict = result.violations.length === 0 ? 'ok' : `${result.violations.length} violations`;
        console.log(
          `${topology}, ${contestant}, seed ${seed}: ${operations} operations, ${faults} faults, ` +
            `readers ${readers}, permits ${permits}, downgraded ${downgraded}, adopted ${adopted}, overstayed ${overstayed}, ` +
            `${result.seconds.toFixed(1)} s: ${verdict}`,
        );
        if (result.violations.length > 0) console.log(complaintsOf(result));
        if (contestant !== 'library' && result.history) rmSync(result.history, { recursive: true, force: true });
      }
    }
  }
  if (rows.length > 0) console.log(`\n${tableOf(rows)}`);
  return rows.some(({ contestant, result }) => contestant === 'library' && result.violations.length > 0) ? 1 : 0;
}

async function runMutants({ mutants, given, ...settings }: Settings, place: Place): Promise<number> {
  let missed = 0;
  for (const name of mutants) {
    const mutant = ALL_MUTANTS[name]!;
    const seed = given.seeds ? settings.seeds[0]! : mutant.seed;
    const durationMs = 1_000 * (given.seconds ? settings.seconds : mutant.seconds);
    const topology = given.topologies ? settings.topologies[0]! : mutant.topology;
    const plan = planOf(topology, place);
    const options = { ...plan.options, ...mutant.options };
    const result = await runCell({ ...plan, contestant: 'library', seed, durationMs, mutant: name, options });
    const isCaught = result.violations.some(({ rule }) => rule === mutant.caughtBy);
    if (!isCaught) missed++;
    console.log(
      `${isCaught ? 'caught' : 'MISSED'} ${name} (${mutant.what}), ${topology}, seed ${seed}, ${durationMs / 1_000} s`,
    );
    if (result.violations.length > 0) console.log(complaintsOf(result));
    if (isCaught) rmSync(result.history!, { recursive: true, force: true });
  }
  console.log(`${mutants.length - missed} of ${mutants.length} mutants were caught.`);
  return missed === 0 ? 0 : 1;
}

function planOf(id: TopologyId, { root }: Place): Omit<CellPlan, 'contestant' | 'seed' | 'durationMs'> {
  const topology = TOPOLOGIES[id];
  return { topology, peers: join(root, 'bench/contestants'), options: {}, losses: lossesOf(topology) };
}

/**
 * One Redis that loses its data has lost the lock. A node of a Redlock does not vote after that until all has ended. A database loses
 * none.
 */
function lossesOf({ nodes, store }: Topology): FaultKind[] {
  return nodes > 1 || store !== 'redis'
    ? []
    : ['flush', 'flush-cohort', 'restart-empty', 'restart-old', 'swap-primary'];
}

function announce(topology: TopologyId, seed: number, durationMs: number): void {
  const faults = planFaults(seed, durationMs, { topology: TOPOLOGIES[topology], workers: WORKERS });
  console.log(`\n${topology}, seed ${seed}, ${durationMs / 1_000} s: ${faults.map(describeFault).join('; ')}`);
}
