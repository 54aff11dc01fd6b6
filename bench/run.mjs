/**
 * Compares the library with its peers and with bare clients: docs/performance.md, and, with `--faults`, docs/faults.md.
 * `--help` lists the options.
 */
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { installNode } from '../.ci/install-node.mjs';
import { provideRedisServer } from './provide-redis-server.mjs';

const here = (path) => fileURLToPath(new URL(path, import.meta.url));

if (!existsSync(here('node_modules'))) {
  console.log('Installing what the bench compares with.');
  execFileSync('npm', ['ci', '--no-audit', '--no-fund'], { cwd: here('.'), stdio: 'inherit' });
}

if (process.argv.includes('--faults')) {
  endWithCells();
  await (await import('./faults/run.mjs')).runFaults();
  process.exit();
}

// Imported only now: their dependencies have just been installed.
const { readArguments, USAGE } = await import('./arguments.mjs');
const { planCells } = await import('./plan.mjs');
const { SCENARIOS } = await import('./scenarios/index.mjs');
const { runCell } = await import('./run-cell.mjs');
const { describeMachine } = await import('./report/machine.mjs');
const { summarise } = await import('./report/summary.mjs');
const { markdown } = await import('./report/markdown.mjs');
const { publish, writeResults } = await import('./report/publish.mjs');
const { settingsOf } = await import('./read-settings.mjs');

endWithCells();
const settings = settingsOf(readArguments, USAGE);
if (settings.help) console.log(USAGE);
else if (settings.render) await publish(JSON.parse(readFileSync(settings.render, 'utf8')));
else await run();

async function run() {
  await provideRedisServer();
  const nodes = installNodes(settings.scenarios);
  const startedAt = new Date();
  const cells = planCells(settings);
  const results = {
    startedAt,
    quick: settings.quick,
    repetitions: settings.repetitions,
    peerRepetitions: settings.peerRepetitions,
    ...describeMachine(),
    cells: [],
  };
  for (const [index, cell] of cells.entries()) {
    const { limitMs = settings.limitMs, node } = SCENARIOS[cell.scenario];
    const result = await runCell(cell, limitMs, nodes.get(node));
    results.cells.push(result);
    console.error(progress(result, index + 1, cells.length));
  }
  results.minutes = (Date.now() - startedAt.getTime()) / 60_000;
  mkdirSync(here('results'), { recursive: true });
  const file = here(`results/${startedAt.toISOString().replaceAll(':', '-')}.json`);
  await writeResults(file, results);
  const summary = summarise(results);
  console.log(markdown(results, summary));
  console.error(`${results.minutes.toFixed(1)} minutes; all figures: ${file}`);
  if (settings.publish) await publish(results);
  const { blindChecks } = summary;
  if (blindChecks.length > 0) {
    console.error(`Without a lock no update was lost in ${blindChecks.join(', ')}: the check proves nothing.`);
    process.exitCode = 1;
  }
}

/** See run-cell.mjs. */
function endWithCells() {
  process.on('SIGINT', () => process.exit(130));
  process.on('SIGTERM', () => process.exit(143));
}

/** Installs the other versions of Node.js that scenarios run on, for the duration of this run. */
function installNodes(scenarios) {
  const versions = new Set(scenarios.map((id) => SCENARIOS[id].node).filter(Boolean));
  return new Map(
    [...versions].map((version) => {
      const { bin, remove } = installNode(version);
      process.once('exit', remove);
      return [version, join(bin, 'node')];
    }),
  );
}

function progress({ scenario, contestant, repetition, counting, seconds, failure }, number, count) {
  const what = counting ? 'commands' : `repetition ${repetition + 1}`;
  return `[${number}/${count}] ${scenario} ${contestant}, ${what}: ${failure ?? `${seconds.toFixed(1)} s`}`;
}
