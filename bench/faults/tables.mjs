/**
 * The matrices of the report: a row for each fault, a column for each participant. If seeds disagree, a cell has the
 * figures of each seed.
 */
import { table } from '../report/format.mjs';
import { FAULTS } from './faults.mjs';
import { PARTICIPANTS } from './settings.mjs';

const seconds = (ms) => (ms === null ? 'never' : (ms / 1_000).toFixed(1));
const counts = (results, count) => [...new Set(results.map(count))].join(' / ');
const bold = (text) => (/^0( \/ 0)*$/.test(text) ? text : `**${text}**`);

/** Seconds: one number, or from the shortest to the longest. */
function span(results, time) {
  const times = results.map((result) => time(result) ?? Infinity).sort((a, b) => a - b);
  const texts = [times[0], times.at(-1)].map((ms) => seconds(ms === Infinity ? null : ms));
  return [...new Set(texts)].join('–');
}

/**
 * Returns the text of a cell for each matrix.
 * @param results one for each seed
 */
export const MATRICES = {
  'Turns beside an unaware holder (for how long at most, in s)': (results) => {
    const longest = Math.max(...results.map(({ unawareMs }) => unawareMs));
    return bold(counts(results, ({ unaware }) => unaware)) + (longest > 0 ? ` (${seconds(longest)})` : '');
  },
  'Lost updates (with tokens)': (results, { fences }) =>
    bold(counts(results, ({ lost }) => lost)) + (fences ? ` (${counts(results, ({ lostFenced }) => lostFenced)})` : ''),
  'Longest time without a holder; from the end of the fault to the next turn (s)': (results) =>
    `${span(results, ({ idleMs }) => idleMs)}; ${span(results, ({ nextMs }) => nextMs)}`,
};

const NAMES = { redis: 'one Redis', postgres: 'PostgreSQL', mariadb: 'MariaDB' };
const NODES = '5 nodes';
const PLACES = [NAMES.redis, NODES, NAMES.postgres, NAMES.mariadb];

/** The store of the locks of a cell. */
function placeOf({ contestant, fault }) {
  return FAULTS[fault].form === 'nodes' ? NODES : NAMES[PARTICIPANTS[contestant].store];
}

export function matrices(cells) {
  return Object.entries(MATRICES)
    .flatMap(([title, format]) =>
      PLACES.map((place) =>
        matrix(
          `${title}: ${place}`,
          cells.filter((cell) => placeOf(cell) === place),
          format,
        ),
      ),
    )
    .filter(Boolean)
    .join('\n\n');
}

function matrix(title, cells, format) {
  if (cells.length === 0) return '';
  const participants = present(PARTICIPANTS, cells, 'contestant');
  const rows = present(FAULTS, cells, 'fault').map((fault) => [
    FAULTS[fault].title,
    ...participants.map((id) => cellText(resultsOf(cells, id, fault), PARTICIPANTS[id], format)),
  ]);
  return `### ${title}\n\n${table(['fault', ...participants.map((id) => PARTICIPANTS[id].title)], rows)}`;
}

function cellText({ results, failures }, participant, format) {
  const texts = [results.length > 0 && format(results, participant), failures.length > 0 && 'failed'];
  return texts.filter(Boolean).join(' / ') || '·';
}

/** The items of a list that have cells, in the order of the list. */
export function present(known, cells, name) {
  const seen = new Set(cells.map((cell) => cell[name]));
  return Object.keys(known).filter((id) => seen.has(id));
}

/** The results of all seeds of one participant under one fault. */
export function resultsOf(cells, contestant, fault) {
  const own = cells.filter((cell) => cell.contestant === contestant && cell.fault === fault);
  return {
    results: own.flatMap(({ result }) => result ?? []),
    failures: own.flatMap(({ failure, seed }) => (failure ? { failure, seed } : [])),
  };
}
