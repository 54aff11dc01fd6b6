import { existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { parseArgs } from 'node:util';
import { findMariaDb } from '../../servers/find-mariadb.js';
import { providePostgres } from '../../servers/find-postgres.js';
import { provideRedisServer } from '../../servers/find-redis-server.js';
import { runCell, WORKERS, type CellResult } from './cell.js';
import { RULES } from './history-checker.js';
import { pick } from '../support/pick.js';
import { describeFault, planFaults, TOPOLOGIES, type TopologyId } from './schedule.js';
import { SQL_MUTANTS } from './sql-mutants.js';

const TOPOLOGY_IDS = Object.keys(TOPOLOGIES) as TopologyId[];
const MUTANT_NAMES = Object.keys(SQL_MUTANTS);

const USAGE = `npm run chaos -- [options]
  --seed n             of the schedule; "random" takes one and prints it (default: 1)
  --seeds a,b          one after the other
  --seconds s          under faults in all, shared by topologies and seeds (default: 60)
  --minutes m          the same in minutes
  --topologies a,b     ${TOPOLOGY_IDS.join(' ')} (default: all; mariadb only if there is one already)
  --mutant name        the library broken on purpose, on PostgreSQL: it must be caught. ${MUTANT_NAMES.join(' ')}
  --mutants            all of them; those on Redis has npm run simulate
  --fair               one server serves strictly in the order of arrival; not with a Redlock, nor a MariaDB
  --schedule           print what the nemesis would do, and do nothing`;

type Settings = ReturnType<typeof readArguments>;

/** @returns the exit code: 1 if something was wrong, or if a mutant was not caught */
export async function main(args: string[], { root }: { root: string }): Promise<number> {
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
  if (!existsSync(join(root, 'dist/esm'))) {
    console.error('There is no built library: npm run build');
    return 2;
  }
  process.env.REDIS_SERVER = (await provideRedisServer()).path;
  process.env.POSTGRES_SERVER = await providePostgres();
  return settings.mutants.length > 0 ? runMutants(settings) : runCells(settings);
}

/** @throws Error that says what is not understood */
function readArguments(args: string[]) {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean', default: false } as const;
  const { values } = parseArgs({
    args,
    options: { seed: text, seeds: text, seconds: text, minutes: text, topologies: text, mutant: text, mutants: flag, schedule: flag, fair: flag, help: flag }, // prettier-ignore
  });
  const { seed = '1', seeds = seed, minutes = '1', seconds = `${60 * Number(minutes)}`, mutant, ...others } = values;
  if (!(Number(seconds) > 0)) throw new Error(`--seconds and --minutes are numbers above 0: got ${seconds}.`);
  const isThere = (id: TopologyId) => id !== 'mariadb' || findMariaDb() !== undefined;
  return {
    ...others,
    seeds: seeds.split(',').map(seedOf),
    seconds: Number(seconds),
    topologies: values.topologies === undefined ? TOPOLOGY_IDS.filter(isThere) : pick(values.topologies, TOPOLOGY_IDS),
    mutants: values.mutants ? MUTANT_NAMES : mutant === undefined ? [] : pick(mutant, MUTANT_NAMES),
  };
}

function seedOf(value: string): number {
  if (value === 'random') return Math.floor(Math.random() * 1e9);
  const seed = Number(value);
  if (!Number.isSafeInteger(seed) || seed < 0) throw new Error(`--seed is a whole number or "random": got ${value}.`);
  return seed;
}

async function runCells({ topologies, seeds, seconds, fair, schedule }: Settings): Promise<number> {
  const durationMs = (seconds * 1_000) / (topologies.length * seeds.length);
  let failed = 0;
  for (const seed of seeds) {
    for (const id of topologies) {
      const topology = TOPOLOGIES[id];
      const faults = planFaults(seed, durationMs, { topology, workers: WORKERS });
      console.log(`\n${id}, seed ${seed}, ${durationMs / 1_000} s: ${faults.map(describeFault).join('; ')}`);
      if (schedule) continue;
      const result = await runCell({ topology, seed, durationMs, fair });
      const figures = Object.entries(result.figures).flatMap(([name, count]) => (count > 0 ? `${name} ${count}` : []));
      console.log(`${id}, seed ${seed}: ${figures.join(', ')}; ${result.seconds.toFixed(1)} s`);
      console.log(complaintsOf(result));
      if (result.violations.length > 0) failed++;
    }
  }
  return failed > 0 ? 1 : 0;
}

/** On PostgreSQL: the simulation finds the mutants on Redis. */
async function runMutants({ mutants, seeds }: Settings): Promise<number> {
  let missed = 0;
  for (const name of mutants) {
    const { what, seconds, caughtBy } = SQL_MUTANTS[name]!;
    const plan = { topology: TOPOLOGIES.postgres, seed: seeds[0]!, durationMs: 1_000 * seconds, fair: false };
    const result = await runCell({ ...plan, mutant: name });
    const isCaught = result.violations.some(({ rule }) => rule === caughtBy);
    if (!isCaught) missed++;
    console.log(`${isCaught ? 'caught' : 'MISSED'} ${name} (${what}), seed ${plan.seed}, ${seconds} s`);
    console.log(complaintsOf(result));
    if (isCaught) rmSync(result.history!, { recursive: true, force: true });
  }
  console.log(`${mutants.length - missed} of ${mutants.length} mutants were caught.`);
  return missed === 0 ? 0 : 1;
}

/** The number of each kind, and the first few. */
function complaintsOf({ violations, history }: CellResult): string {
  if (violations.length === 0) return '  ok';
  const shown = RULES.flatMap((rule) => {
    const broken = violations.filter((violation) => violation.rule === rule);
    const texts = broken.slice(0, 3).map(({ text }) => `    ${text}`);
    return broken.length === 0 ? [] : [`  ${rule}: ${broken.length}`, ...texts];
  });
  return [...shown, `  the history: ${history}`].join('\n');
}
