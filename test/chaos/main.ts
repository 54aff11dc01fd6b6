import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { provideRedisServer } from '../../servers/find-redis-server.js';
import { providePostgres } from '../../servers/find-postgres.js';
import { readArguments, USAGE, type Settings } from './arguments.js';
import { runCell, WORKERS } from './cell.js';
import { complaintsOf, tableOf, type Row } from './report.js';
import { describeFault, planFaults } from './schedule.js';
import { SQL_MUTANTS } from './sql-mutants.js';
import { TOPOLOGIES, type TopologyId } from './topologies.js';

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
  return settings.mutants.length > 0 ? runMutants(settings) : runCells(settings);
}

async function runCells({ topologies, seeds, seconds, ...settings }: Settings): Promise<number> {
  const durationMs = (seconds * 1_000) / (topologies.length * seeds.length);
  const rows: Row[] = [];
  for (const seed of seeds) {
    for (const topology of topologies) {
      announce(topology, seed, durationMs);
      if (settings.schedule) continue;
      const result = await runCell({ topology: TOPOLOGIES[topology], seed, durationMs, fair: settings.fair });
      rows.push({ topology, result });
      const { operations, faults, readers, permits, downgraded, adopted, overstayed } = result.figures;
      const verdict = result.violations.length === 0 ? 'ok' : `${result.violations.length} violations`;
      console.log(
        `${topology}, seed ${seed}: ${operations} operations, ${faults} faults, ` +
          `readers ${readers}, permits ${permits}, downgraded ${downgraded}, adopted ${adopted}, overstayed ${overstayed}, ` +
          `${result.seconds.toFixed(1)} s: ${verdict}`,
      );
      if (result.violations.length > 0) console.log(complaintsOf(result));
    }
  }
  if (rows.length > 0) console.log(`\n${tableOf(rows)}`);
  return rows.some(({ result }) => result.violations.length > 0) ? 1 : 0;
}

/** On PostgreSQL: those on Redis are found in the simulation. */
async function runMutants({ mutants, seeds }: Settings): Promise<number> {
  let missed = 0;
  for (const name of mutants) {
    const { what, seconds, caughtBy } = SQL_MUTANTS[name]!;
    const plan = { topology: TOPOLOGIES.postgres, seed: seeds[0]!, durationMs: 1_000 * seconds, fair: false };
    const result = await runCell({ ...plan, mutant: name });
    const isCaught = result.violations.some(({ rule }) => rule === caughtBy);
    if (!isCaught) missed++;
    console.log(`${isCaught ? 'caught' : 'MISSED'} ${name} (${what}), seed ${plan.seed}, ${seconds} s`);
    if (result.violations.length > 0) console.log(complaintsOf(result));
    if (isCaught) rmSync(result.history!, { recursive: true, force: true });
  }
  console.log(`${mutants.length - missed} of ${mutants.length} mutants were caught.`);
  return missed === 0 ? 0 : 1;
}

function announce(topology: TopologyId, seed: number, durationMs: number): void {
  const faults = planFaults(seed, durationMs, { topology: TOPOLOGIES[topology], workers: WORKERS });
  console.log(`\n${topology}, seed ${seed}, ${durationMs / 1_000} s: ${faults.map(describeFault).join('; ')}`);
}
