import { parseArgs } from 'node:util';
import { CONTESTANTS } from './contestants/index.mjs';
import { SCENARIOS } from './scenarios/index.mjs';

const ALL_CONTESTANTS = Object.keys(CONTESTANTS);
const ALL_SCENARIOS = Object.keys(SCENARIOS);

export const USAGE = `npm run bench -- [options]
  --quick               one repetition, short, with two of the peers: about eleven minutes
  --only a,b            scenarios: ${ALL_SCENARIOS.join(' ')}
  --contestants a,b     or "all": ${ALL_CONTESTANTS.join(' ')}
  --repetitions n       3 by default
  --peer-repetitions n  of the peers; as many by default
  --limit s             a cell that takes longer is given up, 60 s by default; some have 120 s
  --publish             write docs/performance.md and its plots from this run
  --render file.json    write them from the results of an earlier run, and run nothing`;

/** A quick run meets a peer that looks every 200 ms and one that looks every 10 ms. */
const LEFT_OUT_WHEN_QUICK = ['redlock-4', 'sesamecare-redlock', 'redlock-universal', 'verrou', 'murlock', 'redis-kit'];

/** @throws Error that says what is not understood, and the usage */
export function readArguments(args = process.argv.slice(2)) {
  const { values } = parseArgs({
    args,
    options: {
      quick: { type: 'boolean', default: false },
      only: { type: 'string' },
      contestants: { type: 'string' },
      repetitions: { type: 'string' },
      'peer-repetitions': { type: 'string' },
      limit: { type: 'string' },
      publish: { type: 'boolean', default: false },
      render: { type: 'string' },
      help: { type: 'boolean', default: false },
    },
  });
  const { quick } = values;
  const usual = quick ? ALL_CONTESTANTS.filter((id) => !LEFT_OUT_WHEN_QUICK.includes(id)) : ALL_CONTESTANTS;
  const repetitions = whole('repetitions', values.repetitions, quick ? 1 : 3);
  return {
    ...values,
    repetitions,
    peerRepetitions: whole('peer-repetitions', values['peer-repetitions'], repetitions),
    limitMs: whole('limit', values.limit, 60) * 1_000,
    scenarios: pick('only', values.only, ALL_SCENARIOS, ALL_SCENARIOS),
    contestants: pick('contestants', values.contestants, ALL_CONTESTANTS, usual),
  };
}

function whole(name, value, usual) {
  const number = Number(value ?? usual);
  if (!Number.isInteger(number) || number < 1) throw new Error(`--${name} is a whole number from 1: got ${value}.`);
  return number;
}

function pick(name, value, known, usual) {
  if (value === undefined) return usual;
  if (value === 'all') return known;
  const ids = value.split(',');
  const unknown = ids.find((id) => !known.includes(id));
  if (unknown !== undefined) throw new Error(`--${name} does not know ${unknown}: expected ${known.join(', ')}.`);
  return known.filter((id) => ids.includes(id));
}
