import { CONTESTANTS } from './contestants/index.mjs';
import { SCENARIOS, takesPart } from './scenarios/index.mjs';

/**
 * The cells of a run, in order. Every repetition goes through all scenarios, and in each of them through the
 * contestants, from a different first one and every second time backwards, so that compared neighbours stay neighbours.
 * Commands are counted once, at the end.
 */
export function planCells({ scenarios, contestants, repetitions, peerRepetitions, quick }) {
  const cells = [];
  const of = (scenario) => contestants.filter((contestant) => takesPart(contestant, scenario));
  for (let repetition = 0; repetition < repetitions; repetition++) {
    for (const scenario of scenarios) {
      if (repetition > 0 && SCENARIOS[scenario].once) continue;
      for (const id of rotated(of(scenario), repetition)) {
        if (repetition >= peerRepetitions && !isOurs(id)) continue;
        cells.push({ scenario, contestant: id, repetition, quick, counting: false });
      }
    }
  }
  for (const scenario of scenarios.filter((id) => SCENARIOS[id].counts)) {
    for (const id of of(scenario)) {
      if (id !== 'no-lock') cells.push({ scenario, contestant: id, repetition: 0, quick, counting: true });
    }
  }
  return cells;
}

/** The library, and the baselines of its ratios. */
function isOurs(id) {
  return /^(library|raw)/.test(id);
}

function rotated(list, repetition) {
  const from = (repetition * 2) % Math.max(1, list.length);
  const order = [...list.slice(from), ...list.slice(0, from)];
  return repetition % 2 === 1 ? order.reverse() : order;
}

/** Contestants in the order of reports: the library, the baselines, the peers. */
export const REPORT_ORDER = ['library', ...Object.keys(CONTESTANTS).filter((id) => id !== 'library')];
