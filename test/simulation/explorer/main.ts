import { MUTANTS } from '../../chaos/mutants.js';
import { readArguments, USAGE, type Settings } from './arguments.js';
import { Copies, type LibraryPlace } from './copies.js';
import { missing, reach, type Marks } from './marks.js';
import { DEAD_HOLDERS, planOf, STALE_PLACES, TOPOLOGIES, type Plan, type Topology } from './plan.js';
import { failureOf, headOf, LAST_LINES, lineOf, tableOf, testOf } from './report.js';
import { shrink } from './shrink.js';
import { simulate, type Result } from './simulate.js';

export const EXIT = { ok: 0, failed: 1, usage: 64 } as const;

/** How long the search for a mutant may take, in seconds of CPU time. */
const MUTANT_SECONDS = 30;
/** They matter only where servers are replaced by their replicas. */
const OF_REPLICAS = ['replica-is-kept', 'stale-places-served'];
/** Where a mutant makes a difference, if not everywhere. */
const WHERE: Readonly<Record<string, Partial<Plan>>> = {
  'expired-holders-count': DEAD_HOLDERS,
  'stale-places-served': STALE_PLACES,
};
/** Within this many seeds each state must be reached. */
const MANY_SEEDS = 40;
/** The number of failed seeds that are printed completely. */
const PRINTED = 3;

/** @returns the exit code */
export async function main(args: string[], place: LibraryPlace): Promise<number> {
  let settings: Settings;
  try {
    settings = readArguments(args);
  } catch (error) {
    console.error(`${(error as Error).message}\n\n${USAGE}`);
    return EXIT.usage;
  }
  switch (settings.mode) {
    case 'help':
      console.log(USAGE);
      return EXIT.ok;
    case 'explore':
      return explore(settings, new Copies(place));
    case 'mutants':
      return findMutants(settings, new Copies(place));
  }
}

async function explore(settings: Settings, copies: Copies): Promise<number> {
  const { topologies, seed = newSeed(), seeds = Infinity, seconds, traces, shrinks } = settings;
  const since = process.cpuUsage();
  const until = performance.now() + (seeds === Infinity ? seconds * 1_000 : Infinity);
  const marks: Marks = new Map();
  const total = { seeds: 0, faults: 0, grants: 0, seconds: 0, failed: 0 };
  console.log(`Seeds from ${seed} on, on ${topologies.join(', ')}.`);
  for (let next = seed; next < seed + seeds && performance.now() < until; next++) {
    total.seeds++;
    for (const topology of topologies) {
      const plan = planOf(next, topology);
      if (traces) console.log(headOf(plan));
      const result = await simulate(plan, copies, traces ? (line) => console.log(lineOf(line)) : undefined);
      total.faults += plan.faults.length;
      total.grants += result.figures.grants;
      total.seconds += result.seconds;
      for (const [mark, times] of result.marks) reach(marks, mark, times);
      if (settings.seed !== undefined && seeds <= PRINTED)
        console.log(`${topology}, seed ${next}: hash ${result.hash}`);
      if (result.violations.length === 0) continue;
      if (++total.failed <= PRINTED) await printFailure(result, copies);
      else console.log(`FAILED ${headOf(plan)}`);
      if (shrinks && total.failed === 1) await printShrunk(result, copies);
    }
  }
  const cpuS = secondsOf(process.cpuUsage(since));
  console.log(
    `${total.seeds} seeds, ${total.faults} faults, ${total.grants} locks, ${total.seconds.toFixed(0)} s of simulated time in ` +
      `${cpuS.toFixed(1)} s of CPU time: ${(total.grants / cpuS).toFixed(0)} locks a second. Runs that failed: ${total.failed}.`,
  );
  console.log(`Reached: ${tableOf(marks)}.`);
  const unreached = total.seeds >= MANY_SEEDS ? missing(marks, topologies) : [];
  if (unreached.length > 0) console.log(`NEVER REACHED: ${unreached.join(', ')}.`);
  return total.failed > 0 || unreached.length > 0 ? EXIT.failed : EXIT.ok;
}

/** Runs it again for its trace: the same happens. */
async function printFailure(result: Result, copies: Copies): Promise<void> {
  let trace: string[] = [];
  const { hash } = await simulate(result.plan, copies, (line) => {
    trace.push(line);
    if (trace.length > 2 * LAST_LINES) trace = trace.slice(-LAST_LINES);
  });
  console.log(failureOf(result, trace));
  if (hash !== result.hash) console.log(`  NOT THE SAME when it ran again: hash ${hash}`);
}

async function printShrunk({ plan, violations }: Result, copies: Copies): Promise<void> {
  const { rule } = violations[0]!;
  const small = await shrink(plan, rule, copies);
  console.log(small ? `Less of it breaks the rule "${rule}", too:\n${testOf(small)}` : 'It did not fail again.');
}

async function findMutants({ mutants, topologies, seed = 1 }: Settings, copies: Copies): Promise<number> {
  let missed = 0;
  for (const mutant of mutants) {
    const topology = topologies.find((each) => isMeantFor(each, mutant)) ?? topologies[0]!;
    const since = process.cpuUsage();
    const cpuS = () => secondsOf(process.cpuUsage(since));
    let found: Result | undefined;
    let next = seed;
    for (; !found && cpuS() < MUTANT_SECONDS; next++)
      found = await violationOf(planOf(next, topology, { ...WHERE[mutant], mutant }), copies);
    if (!found) missed++;
    const how = found ? `${found.violations[0]!.rule}: ${found.violations[0]!.text}` : MUTANTS[mutant]!.what;
    const verdict = found ? 'found' : 'MISSED';
    console.log(`${verdict} ${mutant}, ${topology}, ${next - seed} seeds, ${cpuS().toFixed(1)} s of CPU time; ${how}`);
  }
  console.log(`${mutants.length - missed} of ${mutants.length} mutants were found.`);
  return missed > 0 ? EXIT.failed : EXIT.ok;
}

function isMeantFor(topology: Topology, mutant: string): boolean {
  if (OF_REPLICAS.includes(mutant)) return topology === 'sentinel';
  return TOPOLOGIES[topology].servers === (MUTANTS[mutant]!.nodes ?? 1);
}

async function violationOf(plan: Plan, copies: Copies): Promise<Result | undefined> {
  const result = await simulate(plan, copies);
  return result.violations.length > 0 ? result : undefined;
}

/** The seed of a run that names none: printed, so that it can be repeated. */
function newSeed(): number {
  return Math.floor(Math.random() * 1e9);
}

function secondsOf({ user, system }: NodeJS.CpuUsage): number {
  return (user + system) / 1e6;
}
