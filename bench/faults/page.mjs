/** Writes the figures of docs/faults.md. */
import { readFileSync, writeFileSync } from 'node:fs';
import { format } from 'prettier';
import { table } from '../report/format.mjs';
import { betterPeers, disagreements, otherCounts } from './findings.mjs';
import { FAULTS } from './faults.mjs';
import { planCells } from './plan.mjs';
import { PARTICIPANTS } from './settings.mjs';
import { matrices, present } from './tables.mjs';

const PAGE = new URL('../../docs/faults.md', import.meta.url);
const FIGURES = /(<!-- figures of the faults -->)[^]*(<!-- end of the figures -->)/;
/** If a process stood still for this long, the machine was busy. */
const STALL_MS = 500;

/** @param runs each run with its conditions and its cells */
export async function publish(runs) {
  const text = readFileSync(PAGE, 'utf8');
  if (!FIGURES.test(text)) throw new Error('docs/faults.md has lost the marks around its figures.');
  const written = text.replace(FIGURES, (_, begin, end) => `${begin}\n\n${report(runs)}\n\n${end}`);
  writeFileSync(PAGE, await format(written, { printWidth: 120, singleQuote: true, parser: 'markdown' }));
}

export function report(runs) {
  const cells = runs.flatMap((run) => run.cells);
  const section = (title, text) => `### ${title}\n\n${text || 'None.'}`;
  return [
    conditions(runs, cells),
    matrices(cells),
    section('Where a peer is better than this library', betterPeers(cells)),
    section('What else was counted', otherCounts(cells)),
    section('Where seeds disagree, or a cell failed', disagreements(cells)),
    settings(cells),
  ].join('\n\n');
}

function conditions(runs, cells) {
  const [{ machine, redis, clients, versions }] = runs.map((run) => run.conditions);
  const packages = new Set(present(PARTICIPANTS, cells, 'contestant').flatMap((id) => PARTICIPANTS[id].package ?? []));
  const named = [...packages].map((name) => `${name} ${versions[name].replace(/^npm:.*@/, '')}`);
  const seeds = [...new Set(cells.map(({ seed }) => seed))].sort((a, b) => a - b);
  const failed = cells.filter(({ failure }) => failure).length;
  const stalled = cells.filter(({ result }) => result?.stallMs > STALL_MS).length;
  const days = [...new Set(runs.map((run) => run.conditions.startedAt.slice(0, 10)))];
  const whole = planCells({ libraries: Object.keys(PARTICIPANTS), faults: Object.keys(FAULTS), seeds });
  return `${cells.length} of ${whole.length} cells, seeds ${seeds.join(', ')}, on ${days.join(', ')}; ${failed} failed. In ${stalled} cells the event loop of a process without a fault stood still for more than ${STALL_MS / 1_000} s. ${machine.cores} cores of ${machine.cpu}, ${machine.system}, Node.js ${machine.node}, Redis ${redis}. Versions: ${named.join(', ')}. This library uses ioredis ${clients.ioredis} and node-redis ${clients.redis}, the peers ioredis ${versions.ioredis} and node-redis ${versions.redis}.`;
}

function settings(cells) {
  const rows = present(PARTICIPANTS, cells, 'contestant').flatMap((id) => {
    const { title, page, says = {} } = PARTICIPANTS[id];
    return Object.entries(says).map(([setting, sentence]) => [`[${title}](${page})`, setting, `"${sentence}"`]);
  });
  if (rows.length === 0) return '';
  return `### Settings of the peers\n\n${table(['peer', 'setting', 'the sentence it comes from'], rows).replaceAll('--:', '---')}`;
}
