import { parseArgs } from 'node:util';
import { findMariaDb } from '../../servers/find-mariadb.js';
import { SQL_MUTANTS } from './sql-mutants.js';
import { TOPOLOGY_IDS, type TopologyId } from './topologies.js';

const MUTANT_NAMES = Object.keys(SQL_MUTANTS);

export const USAGE = `npm run chaos -- [options]
  --seed n             of the schedule; "random" takes one and prints it (default: 1)
  --seeds a,b          one after the other
  --seconds s          under faults in all, shared by topologies and seeds (default: 60)
  --minutes m          the same in minutes
  --topologies a,b     ${TOPOLOGY_IDS.join(' ')} (default: all; mariadb only if there is one already)
  --mutant name        the library broken on purpose, on PostgreSQL: it must be caught. ${MUTANT_NAMES.join(' ')}
  --mutants            all of them; those on Redis has npm run simulate
  --fair               one server serves strictly in the order of arrival; not with a Redlock, nor a MariaDB
  --schedule           print what the nemesis would do, and do nothing`;

export interface Settings {
  help: boolean;
  schedule: boolean;
  fair: boolean;
  seeds: number[];
  seconds: number;
  topologies: TopologyId[];
  mutants: string[];
}

/** @throws Error what is not understood */
export function readArguments(args: string[]): Settings {
  const text = { type: 'string' } as const;
  const flag = { type: 'boolean', default: false } as const;
  const { values } = parseArgs({
    args,
    options: {
      seed: text,
      seeds: text,
      seconds: text,
      minutes: text,
      topologies: text,
      mutant: text,
      mutants: flag,
      schedule: flag,
      fair: flag,
      help: flag,
    },
  });
  const { seed, seeds = seed, seconds, minutes } = values;
  return {
    help: values.help,
    schedule: values.schedule,
    fair: values.fair,
    seeds: (seeds ?? '1').split(',').map(seedOf),
    seconds: minutes === undefined ? positive('seconds', seconds ?? '60') : 60 * positive('minutes', minutes),
    topologies: pick('topologies', values.topologies, TOPOLOGY_IDS).filter(
      (id) => id !== 'mariadb' || values.topologies !== undefined || findMariaDb() !== undefined,
    ),
    mutants: values.mutants ? MUTANT_NAMES : values.mutant ? pick('mutant', values.mutant, MUTANT_NAMES) : [],
  };
}

function seedOf(value: string): number {
  if (value === 'random') return Math.floor(Math.random() * 1e9);
  const seed = Number(value);
  if (!Number.isSafeInteger(seed) || seed < 0) throw new Error(`--seed is a whole number or "random": got ${value}.`);
  return seed;
}

function positive(name: string, value: string): number {
  const number = Number(value);
  if (!(number > 0)) throw new Error(`--${name} is a number above 0: got ${value}.`);
  return number;
}

function pick<T extends string>(name: string, value: string | undefined, known: readonly T[]): T[] {
  if (value === undefined) return [...known];
  const ids = value.split(',');
  const unknown = ids.find((id) => !known.includes(id as T));
  if (unknown !== undefined) throw new Error(`--${name} does not know ${unknown}: expected ${known.join(', ')}.`);
  return known.filter((id) => ids.includes(id));
}
