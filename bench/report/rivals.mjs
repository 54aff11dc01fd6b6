import { times } from './format.mjs';

const MARGIN = 1.03; // a smaller difference is a tie

const FIGURES = [
  {
    scenario: 'one-at-a-time',
    title: 'uncontended, one at a time: rate to raw',
    name: 'rateToRaw',
    isMoreBetter: true,
  },
  { scenario: '200-in-flight', title: '200 in flight: rate to raw', name: 'rateToRaw', isMoreBetter: true },
  ...['1x100-0ms', '1x100-1ms', '4x25-0ms', '4x25-1ms'].map((scenario) => ({
    scenario,
    title: `${scenario.replace('x', ' × ').replace('-', ', ').replace('ms', ' ms')}: time to the raw queue's`,
    name: 'ms.toBaseline',
  })),
  { scenario: 'wake-up', title: "wake-up: p50 to the raw queue's", name: 'p50Ms.toBaseline' },
  { scenario: 'wake-up', title: "wake-up: p99 to the raw queue's", name: 'p99Ms.toBaseline' },
  { scenario: 'held', title: '2 000 held: client CPU to raw', name: 'clientUs.toBaseline' },
  ...['redlock', 'redlock-fresh'].flatMap((scenario) =>
    [0, 1, 2].map((stopped) => ({
      scenario,
      title: `Redlock of 5${scenario === 'redlock' ? '' : ', fresh keys'}, ${stopped} stopped: p50 to the raw quorum's`,
      name: `${stopped}.p50ToRaw`,
    })),
  ),
];

/** @returns the figures in which a peer is better than the library; baselines are not peers */
export function rivals({ scenarios }) {
  return FIGURES.flatMap(({ scenario, title, name, isMoreBetter }) => {
    const { library, ...others } = scenarios[scenario] ?? {};
    if (library?.[name] === undefined) return [];
    const isBetter = (value) => (isMoreBetter ? value > library[name] * MARGIN : value < library[name] / MARGIN);
    const better = Object.entries(others)
      .filter(([id, own]) => !/^(raw|no-lock)/.test(id) && isBetter(own[name]))
      .map(([id, own]) => ({ id, value: times(own[name]), switchShare: own.switchShare }));
    return better.length > 0 ? [{ title, ours: times(library[name]), better }] : [];
  });
}
