import { parseArgs } from 'node:util';
import { MUTANTS } from '../../chaos/mutants.js';
import { pick } from '../../support/pick.js';
import { TOPOLOGIES, type Topology } from './plan.js';

const KNOWN_MUTANTS = Object.keys(MUTANTS);
const ALL = Object.keys(TOPOLOGIES) as Topology[];

export const USAGE = `npm run simulate -- [options]
Runs the library in simulated processes, on simulated servers and time. What happens in a seed depends on the seed alone.
  --seconds n      of real time, with new seeds (default: 60)
  --seeds n        so many seeds instead
  --seed n         this seed; with --seeds the first one
  --topology a,b   ${ALL.join(' ')} (default: each seed on all of them)
  --trace          print all that happens; with --seed
  --shrink         make the first plan that fails small, and print it as a test
  --mutants        the library broken on purpose, in each way: each has to be found within 30 s of CPU time
  --mutant a,b     some of them: ${KNOWN_MUTANTS.join(' ')}
With REDIS_CLIENT=node-redis in the environment the library uses that instead of ioredis.
Exits with 0: no violation, or all mutants were found; 1: not so; 64: wrong usage. With 40 seeds or
more it also fails if they never reached one of the states of the library that they have to reach.`;

type Mode = 'explore' | 'mutants' | 'help';

export type Settings = ReturnType<typeof readArguments>;

/** @throws Error that says what is not understood */
export function readArguments(args: string[]) {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean', default: false } as const;
  const { values } = parseArgs({
    args,
    options: {
      seed: text,
      seeds: text,
      seconds: text,
      topology: text,
      mutant: text,
      trace: flag,
      shrink: flag,
      mutants: flag,
      help: flag,
    },
  });
  const seed = values.seed === undefined ? undefined : natural('seed', values.seed);
  if (values.trace && seed === undefined)
    throw new Error('--trace needs --seed: the trace of many seeds is of no use.');
  const isOfMutants = values.mutants || values.mutant !== undefined;
  const mode: Mode = values.help ? 'help' : isOfMutants ? 'mutants' : 'explore';
  return {
    mode,
    topologies: values.topology === undefined ? ALL : pick(values.topology, ALL),
    seed,
    /** Undefined: as many as possible in the time limit. */
    seeds: values.seeds === undefined ? (seed === undefined ? undefined : 1) : natural('seeds', values.seeds),
    seconds: values.seconds === undefined ? 60 : natural('seconds', values.seconds),
    traces: values.trace,
    shrinks: values.shrink,
    mutants: values.mutant === undefined ? KNOWN_MUTANTS : pick(values.mutant, KNOWN_MUTANTS),
  };
}

function natural(name: string, value: string): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number) || number < 0 || value.trim() === '')
    throw new Error(`--${name} is a whole number: got "${value}".`);
  return number;
}
