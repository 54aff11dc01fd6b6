import { median } from '../cell/statistics.mjs';
import { REPORT_ORDER } from '../plan.mjs';
import { SCENARIOS } from '../scenarios/index.mjs';

/** The figures whose ratio to the baseline of the same repetition is computed, by kind of scenario. */
const COMPARED = { contended: ['ms', 'p99Ms'], 'wake-up': ['p50Ms', 'p99Ms'], held: ['clientUs'] };

/**
 * Medians over the repetitions, and medians of the ratios within each repetition.
 * @returns scenarios: id → contestant → figures; nested figures have dotted names, ratios are named `….toBaseline`
 */
export function summarise({ cells }) {
  const scenarios = {};
  for (const id of Object.keys(SCENARIOS)) {
    const own = cells.filter(({ scenario }) => scenario === id);
    if (own.length === 0) continue;
    const order = REPORT_ORDER.filter((contestant) => own.some((cell) => cell.contestant === contestant));
    scenarios[id] = Object.fromEntries(order.map((contestant) => [contestant, summariseOne(id, contestant, own)]));
  }
  const blindChecks = Object.keys(scenarios).filter((id) => scenarios[id]['no-lock']?.violations === 0);
  return { scenarios, blindChecks };
}

function summariseOne(id, contestant, cells) {
  const { kind, baseline } = SCENARIOS[id];
  const own = cells.filter((cell) => cell.contestant === contestant);
  const timed = own.filter(({ counting }) => !counting);
  const done = timed.filter(({ result }) => result).map((cell) => ({ ...cell, figures: flattened(cell.result) }));
  const summary = mediansOf(done.map(({ figures }) => figures));
  for (const name of COMPARED[kind] ?? []) {
    const ratios = done.flatMap(({ repetition, figures }) => {
      const other = cells.find(
        (cell) => !cell.counting && cell.contestant === baseline && cell.repetition === repetition,
      )?.result?.[name];
      return other === undefined ? [] : [figures[name] / other];
    });
    if (ratios.length > 0) summary[`${name}.toBaseline`] = median(ratios);
  }
  // A single one is too many: a median must not hide what must not happen.
  for (const name of Object.keys(summary)) {
    if (/(violations|failures|unserved|mostInQueue|keptObjects)$/.test(name))
      summary[name] = Math.max(...done.map(({ figures }) => figures[name] ?? 0));
  }
  const counted = own.find(({ counting, result }) => counting && result)?.result;
  if (counted) Object.assign(summary, { commands: counted.commands, calls: summary.calls ?? counted.calls });
  summary.runs = done.length;
  summary.isRefused = timed.some(({ isRefused }) => isRefused);
  summary.failure = own.find(({ failure }) => failure)?.failure;
  return summary;
}

function mediansOf(results) {
  const medians = {};
  for (const name of new Set(results.flatMap(Object.keys))) {
    const values = results.map((result) => result[name]).filter((value) => value !== undefined && value !== null);
    if (values.length === 0) continue;
    medians[name] = typeof values[0] === 'number' ? median(values) : values[0];
  }
  return medians;
}

function flattened(result, prefix = '') {
  return Object.fromEntries(
    Object.entries(result).flatMap(([name, value]) =>
      typeof value === 'object' && value !== null && !Array.isArray(value)
        ? Object.entries(flattened(value, `${prefix}${name}.`))
        : [[`${prefix}${name}`, value]],
    ),
  );
}
