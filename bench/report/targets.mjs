/**
 * What the library is to reach. `of` picks the figure of a scenario's summary; `atMost` or `atLeast` bounds it.
 */
const contended = (scenario, name, [time, commands, fairness]) => [
  { scenario, title: `${name}: time to the raw queue's`, of: ({ library }) => library['ms.toBaseline'], atMost: time },
  { scenario, title: `${name}: commands a turn`, of: ({ library }) => library.commands, atMost: commands },
  ...(fairness
    ? [
        {
          scenario,
          title: `${name}: longest wait to median`,
          of: ({ library }) => library.maxToMedian,
          atMost: fairness,
        },
      ]
    : []),
  { scenario, title: `${name}: lost updates`, of: ({ library }) => library.violations, atMost: 0 },
];

const redlock = [0, 1, 2].flatMap((stopped) => [
  {
    scenario: 'redlock',
    title: `Redlock of 5, ${stopped} stopped: p50 to the raw quorum's`,
    of: ({ library }) => library[`${stopped}.p50ToRaw`],
    atMost: 1.15,
  },
  {
    scenario: 'redlock',
    title: `Redlock of 5, ${stopped} stopped: failures`,
    of: ({ library }) => library[`${stopped}.failures`],
    atMost: 0,
  },
]);

export const TARGETS = [
  {
    scenario: 'one-at-a-time',
    title: 'Uncontended: rate to raw',
    of: ({ library }) => library.rateToRaw,
    atLeast: 0.97,
  },
  {
    scenario: '200-in-flight',
    title: '200 in flight: rate to raw',
    of: ({ library }) => library.rateToRaw,
    atLeast: 2,
  },
  ...contended('1x100-0ms', '1 × 100, 0 ms', [0.3, 0.3, 1.6]),
  ...contended('1x100-1ms', '1 × 100, 1 ms', [1, 0.3]),
  ...contended('4x25-0ms', '4 × 25, 0 ms', [0.5, 0.6, 1.6]),
  ...contended('4x25-1ms', '4 × 25, 1 ms', [1, 0.6]),
  ...contended('fair-4x25', 'Fair, 4 × 25', [1.5, 3]),
  {
    scenario: 'fair-4x25',
    title: 'Fair, 4 × 25: turns of the luckiest less those of the unluckiest waiter',
    of: ({ library }) => library.mostTurns - library.leastTurns,
    atMost: 2,
  },
  { scenario: 'crowd', title: '4 × 1 000: not served', of: ({ library }) => library.unserved, atMost: 0 },
  {
    scenario: 'crowd',
    title: '4 × 1 000: most that Redis saw waiting',
    of: ({ library }) => library.mostInQueue,
    atMost: 4,
  },
  {
    scenario: 'crowd',
    title: '4 × 1 000: objects kept afterwards',
    of: ({ library }) => library.keptObjects,
    atMost: 0,
  },
  {
    scenario: 'wake-up',
    title: "Wake-up: p50 to the raw queue's",
    of: ({ library }) => library['p50Ms.toBaseline'],
    atMost: 1.2,
  },
  {
    scenario: 'wake-up',
    title: "Wake-up: p99 to the raw queue's",
    of: ({ library }) => library['p99Ms.toBaseline'],
    atMost: 3,
  },
  { scenario: 'held', title: '2 000 held: Redis calls a second', of: ({ library }) => library.commands, atMost: 30 },
  {
    scenario: 'held',
    title: '2 000 held: client CPU to raw',
    of: ({ library }) => library['clientUs.toBaseline'],
    atMost: 0.7,
  },
  { scenario: 'held', title: '2 000 held: lost', of: ({ library }) => library.violations, atMost: 0 },
  {
    scenario: 'held',
    title: '2 000 held: event-loop delay p99, ms',
    of: ({ library }) => library.loopDelayP99Ms,
    atMost: 20,
  },
  ...redlock,
  {
    scenario: 'redlock',
    title: 'Redlock of 5, 3 stopped: ms until the error',
    of: ({ library }) => library['3.errorMs'],
    atMost: 300,
  },
];

/** @returns the targets of the scenarios that ran, each with its value and whether it is met */
export function judge({ scenarios }) {
  return TARGETS.filter(({ scenario }) => scenarios[scenario]?.library).map((target) => {
    const value = target.of(scenarios[target.scenario]);
    const isKnown = Number.isFinite(value);
    const isMet = isKnown && (target.atMost === undefined ? value >= target.atLeast : value <= target.atMost);
    return { ...target, value: isKnown ? value : undefined, isMet };
  });
}
