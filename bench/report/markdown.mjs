import { CONTESTANTS } from '../contestants/index.mjs';
import { SCENARIOS } from '../scenarios/index.mjs';
import { COLUMNS } from './columns.mjs';
import { number, percent, table } from './format.mjs';
import { rivals } from './rivals.mjs';
import { judge } from './targets.mjs';

/** The report of a run. */
export function markdown(results, summary) {
  const scenarios = Object.entries(summary.scenarios).map(([id, figures]) => scenarioText(id, figures));
  return [conditions(results), targetsText(summary), rivalsText(summary), ...scenarios].filter(Boolean).join('\n\n');
}

function conditions({ startedAt, quick, repetitions, peerRepetitions, minutes, machine, versions }) {
  const { cpu, cores, memoryGb, system, node } = machine;
  const peers = Object.entries(versions).map(([name, version]) => `${name} ${version.replace(/^npm:.*@/, '')}`);
  const kind = quick ? 'A quick run: figures to look at, not to quote. ' : '';
  return `${kind}${new Date(startedAt).toISOString().slice(0, 10)}, ${repetitions} repetition(s)${peerRepetitions === repetitions ? '' : `, of the peers ${peerRepetitions}`}, ${number(minutes)} minutes, on ${cores} cores of ${cpu}, ${memoryGb} GB, ${system}, Node ${node}. Versions: ${peers.join(', ')}.`;
}

function targetsText(summary) {
  const judged = judge(summary);
  if (judged.length === 0) return '';
  const figure = (value) => (value === undefined ? '–' : String(Number(value.toPrecision(4)))); // 3.002 is more than 3
  const rows = judged.map(({ title, value, leastCode, leastCodeValue, atMost, atLeast, isMet }) => [
    title,
    figure(value),
    atMost === undefined ? `≥ ${atLeast}` : `≤ ${atMost}`,
    isMet ? 'yes' : '**no**',
    leastCodeValue === undefined ? '' : `${figure(leastCodeValue)} (${CONTESTANTS[leastCode].title})`,
  ]);
  const heads = ['figure', 'measured', 'wanted', 'met', 'the least code'];
  return `### What the library is to reach\n\n${table(heads, rows)}`;
}

function rivalsText(summary) {
  const lines = rivals(summary).map(({ title, ours, better }) => {
    const who = better.map(({ id, value, switchShare }) => {
      const switches = switchShare === undefined ? '' : ` (switches in ${percent(switchShare)} of its turns)`;
      return `${CONTESTANTS[id].title} ${value}${switches}`;
    });
    return `- ${title}: ${ours}; better: ${who.join(', ')}.`;
  });
  return lines.length > 0 && `### Where a peer is better\n\n${lines.join('\n')}`;
}

function scenarioText(id, figures) {
  const { title, kind } = SCENARIOS[id];
  const columns = COLUMNS[kind];
  const notes = [];
  const rows = Object.entries(figures).map(([contestant, own]) => {
    const name = CONTESTANTS[contestant].title;
    if (own.isRefused) notes.push(`${name}: skipped, this build refuses it: ${own.failure}`);
    else if (own.failure) notes.push(`${name}: a cell failed: ${own.failure}`);
    return own.runs > 0
      ? [name, ...columns.map(([, text]) => text(own))]
      : [name, own.isRefused ? 'skipped' : 'failed', ...columns.slice(1).map(() => '–')];
  });
  const list = notes.map((note) => `- ${note.replaceAll('\n', ' ')}`).join('\n');
  const body = table(['', ...columns.map(([head]) => head)], rows);
  return `### ${title}\n\n${body}${list && `\n\n${list}`}`;
}
