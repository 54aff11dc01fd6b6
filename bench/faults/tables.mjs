/** The matrices of the report: a row for each fault, a column for each participant. Where seeds disagree, a cell has the figure of each. */
import { table } from '../report/format.mjs';
import { FAULTS } from './faults.mjs';
import { PARTICIPANTS } from './settings.mjs';

const seconds = (ms) => (ms === null ? 'never' : (ms / 1_000).toFixed(1));
const loud = (count, more = '') => (count > 0 ? `**${count}**${more}` : '0');

/** What is in a cell, by the title of the matrix. */
export const MATRICES = {
  'Turns that began while an earlier holder took itself for the holder (for how long at most, in s)': (result) =>
    loud(result.unaware, ` (${seconds(result.unawareMs)})`),
  'Lost updates (with tokens)': (result, { fences }) =>
    loud(result.lost, '') + (fences ? ` (${result.lostFenced})` : ''),
  'Longest time without a holder; from the end of the fault to the next turn, in s': (result) =>
    `${seconds(result.idleMs)}; ${seconds(result.nextMs)}`,
};

export function tables(cells) {
  return Object.entries(MATRICES)
    .flatMap(([title, format]) => [
      matrix(
        title,
        cells.filter(({ fault }) => FAULTS[fault].form !== 'nodes'),
        format,
      ),
      matrix(
        `5 nodes: ${title}`,
        cells.filter(({ fault }) => FAULTS[fault].form === 'nodes'),
        format,
      ),
    ])
    .filter(Boolean)
    .join('\n\n');
}

function matrix(title, cells, format) {
  if (cells.length === 0) return '';
  const present = (known, name) => Object.keys(known).filter((id) => cells.some((cell) => cell[name] === id));
  const participants = present(PARTICIPANTS, 'contestant');
  const rows = present(FAULTS, 'fault').map((fault) => [
    FAULTS[fault].title,
    ...participants.map((id) =>
      bothSeeds(
        cells.filter((cell) => cell.contestant === id && cell.fault === fault),
        (result) => format(result, PARTICIPANTS[id]),
      ),
    ),
  ]);
  const head = ['fault', ...participants.map((id) => PARTICIPANTS[id].title)];
  return `### ${title}\n\n${table(head, rows)}`;
}

/** One figure, or one of each seed where they disagree. */
export function bothSeeds(cells, format) {
  const texts = cells.map(({ failure, result }) => (failure ? 'failed' : format(result)));
  return texts.length === 0 ? '·' : [...new Set(texts)].join(' / ');
}
