/** Runs the cells of the report on faults, several at a time, and writes a line of JSON for each: `npm run bench -- --faults`. */
import { appendFileSync, mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { provideRedisServer } from '../provide-redis-server.mjs';
import { settingsOf } from '../read-settings.mjs';
import { runCell } from '../run-cell.mjs';
import { readArguments, USAGE } from './arguments.mjs';
import { describeConditions } from './conditions.mjs';
import { blindControls } from './controls.mjs';
import { FAULTS } from './faults.mjs';
import { publish, report } from './page.mjs';
import { planCells } from './plan.mjs';

const LIMIT_MS = 180_000;
const here = (path) => fileURLToPath(new URL(path, import.meta.url));
const PUBLISHED = here('../results/faults.jsonl');

export async function runFaults() {
  const settings = settingsOf(readArguments, USAGE);
  if (settings.help) return console.log(USAGE);
  const runs = settings.render ? settings.render.flatMap(readRuns) : [await run(settings)];
  console.log(report(runs));
  if (!settings.publish && !settings.render) return;
  const lines = runs.flatMap(({ conditions, cells }) =>
    [conditions, ...cells].map((line) => `${JSON.stringify(line)}\n`),
  );
  writeFileSync(PUBLISHED, lines.join(''));
  await publish(runs);
}

async function run({ parallel, ...settings }) {
  await provideRedisServer();
  const begin = Date.now();
  const conditions = describeConditions();
  const cells = planCells(settings);
  if (cells.length === 0) throw new Error('No library of this run takes part in a fault of this run.');
  mkdirSync(here('../results'), { recursive: true });
  const file = here(`../results/faults-${conditions.startedAt.replaceAll(':', '-')}.jsonl`);
  const write = (line) => appendFileSync(file, `${JSON.stringify(line)}\n`);
  write(conditions);

  const done = [];
  const runAll = (some, atATime) => {
    const todo = some.values();
    const runNext = async () => {
      for (const cell of todo) {
        const result = await runCell(cell, LIMIT_MS, process.execPath, here('cell.mjs'));
        write(result);
        done.push(result);
        console.error(progress(result, done.length, cells.length));
      }
    };
    return Promise.all(Array.from({ length: atATime }, runNext));
  };
  // A cell with many processes replaces several other cells.
  const isLarge = ({ fault }) => FAULTS[fault].processes !== undefined;
  await runAll(cells.filter(isLarge), Math.ceil(parallel / 4));
  await runAll(
    cells.filter((cell) => !isLarge(cell)),
    parallel,
  );
  console.error(`${((Date.now() - begin) / 60_000).toFixed(1)} minutes; all figures: ${file}`);

  const problems = blindControls(done);
  for (const problem of problems) console.error(problem);
  if (problems.length > 0) process.exitCode = 1;
  return { conditions, cells: done };
}

/** A file can contain several runs: each begins with its conditions. */
function readRuns(file) {
  const runs = [];
  for (const line of readFileSync(file, 'utf8')
    .trim()
    .split('\n')
    .map((text) => JSON.parse(text))) {
    if (line.startedAt) runs.push({ conditions: line, cells: [] });
    else runs.at(-1).cells.push(line);
  }
  return runs;
}

function progress({ contestant, fault, seed, seconds, failure }, number, count) {
  return `[${number}/${count}] ${contestant}, ${fault}, seed ${seed}: ${failure ?? `${seconds.toFixed(1)} s`}`;
}
