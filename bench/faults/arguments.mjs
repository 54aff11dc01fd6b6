/** The options of `npm run bench -- --faults`. */
import { parseArgs } from 'node:util';
import { FAULTS } from './faults.mjs';
import { PARTICIPANTS } from './settings.mjs';

export const USAGE = `npm run bench -- --faults [options]
  --library a,b       ${Object.keys(PARTICIPANTS).join(' ')}
  --fault a,b         ${Object.keys(FAULTS).join(' ')}
  --seeds 1,2         1 by default
  --quick             this library, the controls and six faults: a few minutes
  --parallel n        so many cells at a time, 6 by default
  --publish           write docs/faults.md and bench/results/faults.jsonl from this run
  --render a.jsonl,b  write them from the results of earlier runs, and run nothing`;

const QUICK_LIBRARIES = ['library', 'library-node-redis', 'set-nx', 'no-lock'];
const QUICK_FAULTS = [
  'holder-paused',
  'holder-hole',
  'acquire-reply-lost',
  'restarted-empty',
  'failover',
  'nodes-restarted-empty',
];

/** @throws Error that says what is not understood */
export function readArguments(args = process.argv.slice(2)) {
  const text = { type: 'string' };
  const flag = { type: 'boolean', default: false };
  const { values } = parseArgs({
    args,
    options: {
      faults: flag,
      library: text,
      fault: text,
      seeds: { ...text, default: '1' },
      quick: flag,
      parallel: { ...text, default: '6' },
      publish: flag,
      render: text,
      help: flag,
    },
  });
  return {
    ...values,
    libraries: pick('library', values.library, Object.keys(PARTICIPANTS), values.quick && QUICK_LIBRARIES),
    faults: pick('fault', values.fault, Object.keys(FAULTS), values.quick && QUICK_FAULTS),
    seeds: values.seeds.split(',').map((seed) => whole('seeds', seed)),
    parallel: whole('parallel', values.parallel),
    render: values.render?.split(','),
  };
}

function whole(name, text) {
  const number = Number(text);
  if (!Number.isInteger(number) || number < 1) throw new Error(`--${name} takes whole numbers from 1: got ${text}.`);
  return number;
}

function pick(name, text, known, usual) {
  if (text === undefined) return usual || known;
  const ids = text.split(',');
  const unknown = ids.find((id) => !known.includes(id));
  if (unknown !== undefined) throw new Error(`--${name} does not know ${unknown}: expected ${known.join(', ')}.`);
  return ids;
}
