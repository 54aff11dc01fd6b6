/**
 * Lists that are computed from the figures: other events, figures in which seeds disagree, and figures in which a peer
 * is better than this library.
 */
import { FAULTS } from './faults.mjs';
import { PARTICIPANTS } from './settings.mjs';
import { present, resultsOf } from './tables.mjs';

/** Times are orders of magnitude: a smaller difference means nothing. */
const MARGIN_MS = 500;

const total = (counts) => Object.values(counts).reduce((sum, count) => sum + count, 0);

/** The figures of the matrices. */
const VERDICTS = {
  'turns beside an unaware holder': ({ unaware }) => unaware,
  'lost updates': ({ lost }) => lost,
};
/** The other figures. */
const COUNTS = {
  'calls refused': ({ refused }) => total(refused),
  'releases answered with false': ({ notReleased }) => notReleased,
  'calls without an answer for two leases': ({ stuck }) => stuck,
  'unhandled rejections': ({ unhandled }) => unhandled,
  'processes that ended': ({ crashed }) => crashed,
  'tokens that did not grow': ({ tokensBack }) => tokensBack,
};
/** The figures of which more is worse. */
const BAD = { ...VERDICTS, ...COUNTS };
/**
 * The figures that are bad only if the holder keeps its lock: otherwise they say, correctly, that the lock was lost.
 */
const FALSE_ALARMS = {
  'turns that ended with an error': ({ failed }) => total(failed),
  'holders that stopped although they had the lock': ({ learnedMs }) => Number(learnedMs !== null),
};
const LISTED = {
  ...COUNTS,
  'turns that ended with an error': FALSE_ALARMS['turns that ended with an error'],
  'writes refused for their token': ({ refusedWrites }) => refusedWrites,
};

/** One line for each participant, with all figures that are not 0. */
export function otherCounts(cells) {
  const ids = present(PARTICIPANTS, cells, 'contestant').filter((id) => !PARTICIPANTS[id].isControl);
  const lines = ids.map((id) => {
    const faults = present(FAULTS, cells, 'fault').flatMap((fault) => {
      const { results } = resultsOf(cells, id, fault);
      const counted = Object.entries(LISTED).flatMap(([name, count]) => {
        const seen = results.map(count);
        return seen.some((each) => each > 0) ? `${name}: ${[...new Set(seen)].join(' / ')}` : [];
      });
      return counted.length > 0 ? `_${nameOf(fault)}_ (${counted.join(', ')})` : [];
    });
    return `- **${PARTICIPANTS[id].title}**: ${faults.join('; ') || 'nothing'}.`;
  });
  return lines.join('\n');
}

/** Finds figures that one seed lacks and another has, and cells without a result. */
export function disagreements(cells) {
  const lines = eachPlace(cells).flatMap(({ id, fault, results, failures }) => {
    const differing = Object.entries(BAD).flatMap(([name, count]) => {
      const seen = results.map(count);
      return seen.includes(0) && seen.some((each) => each > 0) ? `${name}: ${seen.join(' and ')}` : [];
    });
    differing.push(...failures.map(({ seed, failure }) => `seed ${seed} failed (${failure})`));
    return differing.length > 0 ? `- ${PARTICIPANTS[id].title}, _${nameOf(fault)}_: ${differing.join('; ')}.` : [];
  });
  return lines.join('\n');
}

/** The participant that represents this library on each store. */
const OURS = { redis: 'library', postgres: 'library-postgres', mariadb: 'library-mariadb' };

/**
 * Finds figures in which each seed of a peer is better than each seed of this library on the same store, by more than
 * the margin.
 */
export function betterPeers(cells) {
  if (!present(PARTICIPANTS, cells, 'contestant').some(isPeer)) return 'No peer took part.';
  return Object.entries(OURS)
    .flatMap(([store, own]) =>
      betterThan(
        own,
        cells.filter(({ contestant }) => PARTICIPANTS[contestant].store === store),
      ),
    )
    .join('\n');
}

function betterThan(own, cells) {
  const peers = present(PARTICIPANTS, cells, 'contestant').filter(isPeer);
  return present(FAULTS, cells, 'fault').flatMap((fault) => {
    const ours = resultsOf(cells, own, fault).results;
    if (ours.length === 0) return [];
    const found = Object.entries(measuresOf(fault)).flatMap(([name, { of, margin, text }]) => {
      const least = Math.min(...ours.map(of));
      const better = peers.flatMap((id) => {
        const { results } = resultsOf(cells, id, fault);
        const most = Math.max(...results.map(of));
        if (results.length === 0 || least - most < margin) return [];
        return `${PARTICIPANTS[id].title} ${text(most)}${atWhatPrice(results)}`;
      });
      return better.length > 0 ? `${name}: ${PARTICIPANTS[own].title} ${text(least)}; ${better.join(', ')}` : [];
    });
    return found.length > 0 ? `- _${nameOf(fault)}_: ${found.join('. ')}.` : [];
  });
}

function measuresOf(fault) {
  const counted = { ...BAD, ...(FAULTS[fault].keepsLock && FALSE_ALARMS) };
  const count = ([name, of]) => [name, { of, margin: 1, text: String }];
  const measures = Object.fromEntries(Object.entries(counted).map(count));
  const text = (ms) => `${(ms / 1_000).toFixed(1)} s`;
  measures['longest time without a holder'] = { of: ({ idleMs }) => idleMs, margin: MARGIN_MS, text };
  return measures;
}

/** The advantages of a peer in exchange. */
function atWhatPrice(results) {
  const price = Object.entries(VERDICTS).flatMap(([name, count]) => {
    const most = Math.max(...results.map(count));
    return most > 0 ? `${name}: ${most}` : [];
  });
  return price.length > 0 ? ` (${price.join(', ')})` : '';
}

function eachPlace(cells) {
  const ids = present(PARTICIPANTS, cells, 'contestant').filter((id) => !PARTICIPANTS[id].isControl);
  const faults = present(FAULTS, cells, 'fault');
  return faults.flatMap((fault) => ids.map((id) => ({ id, fault, ...resultsOf(cells, id, fault) })));
}

const isPeer = (id) => !PARTICIPANTS[id].isControl && !id.startsWith('library');
const nameOf = (fault) => (FAULTS[fault].form === 'nodes' ? `5 nodes: ${FAULTS[fault].title}` : FAULTS[fault].title);
