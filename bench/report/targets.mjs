/**
 * The targets of the library. `of` picks the figure from a contestant's summary, if needed also from other scenarios;
 * `atMost` or `atLeast` bounds it. `leastCode` is the baseline that sends the same with the least code, if there is
 * one.
 */
const contended = (scenario, name, [time, commands, fairness], leastCode) => [
  { scenario, title: `${name}: time to the raw queue's`, of: (own) => own['ms.toBaseline'], atMost: time, leastCode },
  { scenario, title: `${name}: commands a turn`, of: (own) => own.commands, atMost: commands },
  ...(fairness
    ? [
        {
          scenario,
          title: `${name}: longest wait to median`,
          of: (own) => own.maxToMedian,
          atMost: fairness,
          leastCode: 'raw-queue',
        },
      ]
    : []),
  { scenario, title: `${name}: lost updates`, of: (own) => own.violations, atMost: 0 },
];

const redlock = (scenario, name, time) =>
  [0, 1, 2].flatMap((stopped) => [
    {
      scenario,
      title: `${name}, ${stopped} stopped: p50 to the raw quorum's`,
      of: (own) => own[`${stopped}.p50ToRaw`],
      atMost: time,
      leastCode: 'raw-scripts',
    },
    {
      scenario,
      title: `${name}, ${stopped} stopped: failures`,
      of: (own) => own[`${stopped}.failures`],
      atMost: 0,
    },
  ]);

export const TARGETS = [
  {
    scenario: 'one-at-a-time',
    title: 'Uncontended: rate to raw',
    of: (own) => own.rateToRaw,
    atLeast: 0.97,
    leastCode: 'raw-scripts',
  },
  {
    scenario: 'one-at-a-time',
    title: 'Uncontended: rate to our bare scripts',
    of: (own) => own.rateToScripts,
    atLeast: 0.95,
  },
  {
    scenario: 'one-at-a-time-cold',
    title: 'Uncontended, first second: rate to raw',
    of: (own) => own.rateToRaw,
    atLeast: 0.93,
    leastCode: 'raw-scripts',
  },
  {
    scenario: 'one-at-a-time-fair',
    title: 'Fair, uncontended: rate to raw',
    of: (own) => own.rateToRaw,
    atLeast: 0.88,
    leastCode: 'raw-scripts',
  },
  {
    scenario: '200-in-flight',
    title: '200 in flight: rate to raw',
    of: (own) => own.rateToRaw,
    atLeast: 2,
  },
  {
    scenario: '200-in-flight',
    title: '200 in flight: rate to our bare scripts',
    of: (own) => own.rateToScripts,
    atLeast: 0.85,
  },
  ...contended('1x100-0ms', '1 × 100, 0 ms', [0.3, 0.3, 1.6]),
  ...contended('1x100-1ms', '1 × 100, 1 ms', [1, 0.3]),
  ...contended('4x25-0ms', '4 × 25, 0 ms', [0.5, 0.08, 1.6]),
  ...contended('4x25-1ms', '4 × 25, 1 ms', [1, 0.6]),
  ...contended('fair-4x25', 'Fair, 4 × 25', [1.5, 0.2], 'raw-confirmed-queue'),
  {
    scenario: 'fair-4x25',
    title: "Fair, 4 × 25: rate to the default's",
    of: (own, scenarios) => own.rate / scenarios['4x25-0ms']?.library?.rate,
    atLeast: 0.6,
  },
  {
    scenario: 'fair-4x25',
    title: 'Fair, 4 × 25: turns of the luckiest less those of the unluckiest waiter',
    of: (own) => own.mostTurns - own.leastTurns,
    atMost: 2,
  },
  { scenario: 'crowd', title: '4 × 1 000: not served', of: (own) => own.unserved, atMost: 0 },
  {
    scenario: 'crowd',
    title: '4 × 1 000: most that Redis saw waiting',
    of: (own) => own.mostInQueue,
    atMost: 4,
  },
  {
    scenario: 'crowd',
    title: '4 × 1 000: objects kept afterwards',
    of: (own) => own.keptObjects,
    atMost: 0,
  },
  {
    scenario: 'wake-up',
    title: "Wake-up: p50 to the raw queue's",
    of: (own) => own['p50Ms.toBaseline'],
    atMost: 1.2,
    leastCode: 'raw-confirmed-queue',
  },
  {
    scenario: 'wake-up',
    title: "Wake-up: p99 to the raw queue's",
    of: (own) => own['p99Ms.toBaseline'],
    atMost: 3,
    leastCode: 'raw-confirmed-queue',
  },
  { scenario: 'held', title: '2 000 held: Redis calls a second', of: (own) => own.commands, atMost: 30 },
  {
    scenario: 'held',
    title: '2 000 held: client CPU to raw',
    of: (own) => own['clientUs.toBaseline'],
    atMost: 0.7,
  },
  { scenario: 'held', title: '2 000 held: lost', of: (own) => own.violations, atMost: 0 },
  {
    scenario: 'held',
    title: '2 000 held: event-loop delay p99, ms',
    of: (own) => own.loopDelayP99Ms,
    atMost: 20,
  },
  { scenario: 'held-20k', title: '20 000 held: Redis calls a second', of: (own) => own.commands, atMost: 215 },
  { scenario: 'held-20k', title: '20 000 held: lost', of: (own) => own.violations, atMost: 0 },
  {
    scenario: 'due-together',
    title: '100 000 extended together: longest hold of the event loop, ms',
    of: (own) => own.holdMs,
    atMost: 20,
  },
  {
    scenario: 'due-together',
    title: "100 000 extended together: p99 of another client's command to that before",
    of: (own) => own.p99ToQuiet,
    atMost: 5,
  },
  { scenario: 'due-together', title: '100 000 extended together: lost', of: (own) => own.violations, atMost: 0 },
  ...redlock('redlock', 'Redlock of 5', 1.15),
  {
    scenario: 'redlock',
    title: 'Redlock of 5, 3 stopped: ms until the error',
    of: (own) => own['3.errorMs'],
    atMost: 300,
  },
  {
    scenario: 'redlock-cold',
    title: "Redlock of 5, first second: p50 to the raw quorum's",
    of: (own) => own['0.p50ToRaw'],
    atMost: 1.35,
    leastCode: 'raw-scripts',
  },
  {
    scenario: 'redlock-cold',
    title: "Redlock of 5, first second: client CPU to the raw quorum's",
    of: (own) => own['0.clientCpuToRaw'],
    atMost: 1.8,
    leastCode: 'raw-scripts',
  },
  ...redlock('redlock-fresh', 'Redlock of 5, fresh keys', 1.4),
  {
    scenario: 'redlock-fresh',
    title: 'Redlock of 5, fresh keys: commands a turn',
    of: (own) => own.commands,
    atMost: 10.05,
    leastCode: 'raw-scripts',
  },
  {
    scenario: 'redlock-fresh',
    title: "Redlock of 5, fresh keys: client CPU to the raw quorum's",
    of: (own) => own['0.clientCpuToRaw'],
    atMost: 1.8,
    leastCode: 'raw-scripts',
  },
  {
    scenario: 'redlock-fresh',
    title: 'Redlock of 5, fresh keys: µs of each node a turn',
    of: (own) => own['0.redisCpuUs'] / 5,
    atMost: 22,
    leastCode: 'raw-scripts',
  },
  {
    scenario: 'second-round-trips',
    title: 'Redlock of 5, 4 × 50 in flight, fresh keys: second round trips that were needed, %',
    of: (own) => own.neededShare * 100,
    atMost: 0.2,
  },
  { scenario: 'keys-left', title: 'Keys left after 200 000 different locks', of: (own) => own.keysLeft, atMost: 1 },
  {
    scenario: 'keys-left-redlock',
    title: 'Keys left on a node of a Redlock after 200 000 different locks',
    of: (own) => own.keysLeft,
    atMost: 4_097,
  },
  ...['dead-places', 'dead-places-cluster'].map((scenario) => ({
    scenario,
    title: `Twenty killed${scenario.endsWith('cluster') ? ', Cluster' : ''}: turns of two others to those undisturbed`,
    of: (own) => own.share,
    atLeast: 0.8,
  })),
  {
    scenario: 'permits-0ms',
    title: 'Permits, 3 of 4 × 25, 0 ms hold: commands a turn',
    of: (own) => own.commands,
    atMost: 0.3,
  },
  {
    scenario: 'permits-20ms',
    title: 'Permits, 3 of 4 × 25, 20 ms hold: commands a turn',
    of: (own) => own.commands,
    atMost: 0.3,
  },
  {
    scenario: 'readers-1ms',
    title: '100 readers in 4 processes: commands a read',
    of: (own) => own.commands,
    atMost: 0.05,
  },
  {
    scenario: 'hot-key',
    title: '2, 32 and 128 services on one key: most commands a turn',
    of: (own) => own.mostCommands,
    atMost: 3.2,
  },
  ...[3, 9].map((masters) => ({
    scenario: `hand-offs-cluster-${masters}`,
    title: `Cluster of ${masters}: bytes on the bus a hand-off`,
    of: (own) => own.bytes,
    atMost: 0,
  })),
  {
    scenario: 'hand-offs-cluster-3',
    title: 'Cluster of 3: p90 of a wake-up on another node to the same node',
    of: (own) => own.p90ToSame,
    atMost: 2,
  },
  {
    scenario: 'waits-2x100k',
    title: '100 000 keys waited for by two: failed',
    of: (own) => own.failures,
    atMost: 0,
  },
  {
    scenario: 'held-beside-waits',
    title: '35 000 waits beside 1 000 held: failed',
    of: (own) => own.failures,
    atMost: 0,
  },
  { scenario: 'burst', title: '300 000 wanted in one tick: failed', of: (own) => own.failures, atMost: 0 },
  {
    scenario: 'held-beside-waits',
    title: '1 000 held beside 35 000 waits: lost',
    of: (own) => own.violations,
    atMost: 0,
  },
  { scenario: 'waits-10k', title: '10 000 keys waited for: commands a second', of: (own) => own.commands, atMost: 300 },
  {
    scenario: 'waits-fair-10k',
    title: '10 000 fair calls for one key: commands a second',
    of: (own) => own.commands,
    atMost: 50,
  },
  {
    scenario: 'waits-fair-10k',
    title: '10 000 fair calls for one key: calls a second inside Redis',
    of: (own) => own.calls,
    atMost: 50,
  },
  {
    scenario: 'held-cluster',
    title: '20 000 held in a Cluster: client CPU µs for each',
    of: (own) => own['cluster.clientUs'],
    atMost: 24,
  },
  {
    scenario: 'held-cluster',
    title: '20 000 held in a Cluster: event loop held, ms',
    of: (own) => own['cluster.holdMs'],
    atMost: 20,
  },
  { scenario: 'held-cluster', title: '20 000 held in a Cluster: lost', of: (own) => own.violations, atMost: 0 },
  {
    scenario: 'redlock-far',
    title: 'Redlock, 100 ms away: granted',
    of: (own) => own['100.granted'],
    atLeast: 1,
  },
  {
    scenario: 'redlock-far',
    title: 'Redlock, 210 ms away: errors that name commandTimeoutMs',
    of: (own) => own['210.errorsThatAdvise'],
    atLeast: 1,
  },
  ...[2, 5].map((size) => ({
    scenario: `sets-${size}`,
    title: `Free sets of ${size}: round trips`,
    of: (own) => own.roundTrips,
    atMost: 1.2,
  })),
  ...['resign', 'close'].map((name) => ({
    scenario: 'leader',
    title: `Leader, ${name}: p50 to a wake-up`,
    of: (own) => own[`${name}.toWake`],
    atMost: 1.5,
  })),
  {
    scenario: 'leader',
    title: 'Leader, kill -9: beyond the ttl, ms',
    of: (own) => own['kill.overTtlMs'],
    atMost: 50,
  },
  {
    scenario: 'sql',
    title: 'PostgreSQL, one at a time: rate to INSERT and DELETE',
    of: (own) => own['alone.toRaw'],
    atLeast: 0.6,
  },
  {
    scenario: 'sql',
    title: 'PostgreSQL, 200 in flight: rate to INSERT and DELETE on 10 connections',
    of: (own) => own['inFlight.toRaw'],
    atLeast: 1.5,
  },
  {
    scenario: 'sql',
    title: 'PostgreSQL, 4 × 25: rate to advisory locks on 100 connections',
    of: (own) => own['contended.toAdvisory'],
    atLeast: 3,
  },
  {
    scenario: 'sql',
    title: 'PostgreSQL, 4 × 25: statements a turn',
    of: (own) => own['contended.statements'],
    atMost: 0.3,
  },
  {
    scenario: 'sql',
    title: "PostgreSQL, wake-up: p50 to a bare NOTIFY's",
    of: (own) => own['wakeUp.toNotify'],
    atMost: 2,
  },
  {
    scenario: 'sql',
    title: 'PostgreSQL, 2 000 held: statements a second',
    of: (own) => own.heldStatements,
    atMost: 30,
  },
  { scenario: 'sql', title: 'PostgreSQL: kB of the table after 100 000 turns', of: (own) => own.heapKb, atMost: 1_024 },
  { scenario: 'sql', title: 'PostgreSQL: lost updates', of: (own) => own.violations, atMost: 0 },
];

/**
 * @returns the targets of the scenarios that ran, each with its value, the value of the least code, and whether it is
 * met
 */
export function judge({ scenarios }) {
  return TARGETS.filter(({ scenario }) => scenarios[scenario]?.library).map((target) => {
    const of = (contestant) => {
      const value = target.of(scenarios[target.scenario][contestant] ?? {}, scenarios);
      return Number.isFinite(value) ? value : undefined;
    };
    const value = of('library');
    const isMet =
      value !== undefined && (target.atMost === undefined ? value >= target.atLeast : value <= target.atMost);
    return { ...target, value, leastCodeValue: target.leastCode && of(target.leastCode), isMet };
  });
}
