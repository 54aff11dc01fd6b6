import { parseArgs } from 'node:util';
import { MUTANTS } from '../../chaos/mutants.js';
import { TOPOLOGIES, type Topology } from './plan.js';

export const KNOWN_MUTANTS = Object.keys(MUTANTS);
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
  --mutant name    one of them: ${KNOWN_MUTANTS.join(' ')}
With REDIS_CLIENT=node-redis in the environment the library uses that instead of ioredis.
Exits with 0: no violation, or all mutants were found; 1: not so; 64: wrong usage. With 40 seeds or
more it also fails if they never reached one of the states of the library that they have to reach.`;

export type Mode = 'explore' | 'mutants' | 'help';

export interface Settings {
  readonly mode: Mode;
  readonly topologies: readonly Topology[];
  /** The first seed; undefined: any. */
  readonly seed?: number;
  /** The number of seeds; undefined: as many as possible in the time limit. */
  readonly seeds?: number;
  readonly seconds: number;
  readonly traces: boolean;
  readonly shrinks: boolean;
  readonly mutants: readonly string[];
}

/** @throws Error that says what is not understood */
export function readArguments(args: string[]): Settings {
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
  return {
    mode: values.help ? 'help' : isOfMutants ? 'mutants' : 'explore',
    topologies: values.topology === undefined ? ALL : values.topology.split(',').map(topologyOf),
    seed,
    seeds: values.seeds === undefined ? (seed === undefined ? undefined : 1) : natural('seeds', values.seeds),
    seconds: values.seconds === undefined ? 60 : natural('seconds', values.seconds),
    traces: values.trace,
    shrinks: values.shrink,
    mutants: values.mutant === undefined ? KNOWN_MUTANTS : [mutantOf(values.mutant)],
  };
}

function natural(name: string, value: string): number {
  const number = Number(value);
  if (!Number.isSafeInteger(number) || number < 0 || value.trim() === '')
    throw new Error(`--${name} is a whole number: got "${value}".`);
  return number;
}

function topologyOf(name: string): Topology {
  const known = ALL.find((topology) => topology === name);
  if (known === undefined) throw new Error(`--topology does not know "${name}": expected ${ALL.join(', ')}.`);
  return known;
}

function mutantOf(name: string): string {
  if (!KNOWN_MUTANTS.includes(name))
    throw new Error(`--mutant does not know "${name}": expected ${KNOWN_MUTANTS.join(', ')}.`);
  return name;
}
