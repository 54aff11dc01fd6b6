import { ROUND_TRIPS_MS } from '../scenarios/redlock-far.mjs';
import { number, percent, times } from './format.mjs';

const rate = ['turns/s', ({ rate: value }) => number(value)];
const latency = [
  ['p50 ms', ({ p50Ms }) => number(p50Ms)],
  ['p99 ms', ({ p99Ms }) => number(p99Ms)],
];
const commands = ['commands a turn', (figures) => number(figures.commands)];
const cost = [
  commands,
  ['calls a turn', ({ calls }) => number(calls)],
  ['client CPU µs', ({ clientCpuUs }) => number(clientCpuUs)],
  ['Redis CPU µs', ({ redisCpuUs }) => number(redisCpuUs)],
];
const stage = (stopped) => [
  [`${stopped} stopped: p50 ms`, (figures) => number(figures[`${stopped}.p50Ms`])],
  ['to raw', (figures) => figures[`${stopped}.failure`] ?? times(figures[`${stopped}.p50ToRaw`])],
  ['client CPU to raw', (figures) => times(figures[`${stopped}.clientCpuToRaw`])],
  ['failures', (figures) => number(figures[`${stopped}.failures`])],
];

/** The columns of each kind of scenario: a head, and the text of a cell. */
export const COLUMNS = {
  uncontended: [
    ['rate to raw', ({ rateToRaw }) => times(rateToRaw)],
    ['to our bare scripts', ({ rateToScripts }) => times(rateToScripts)],
    rate,
    ...latency,
    ...cost,
  ],
  'uncontended-apart': [
    ['rate to raw', ({ rateToRaw }) => times(rateToRaw)],
    ['to our bare scripts', ({ rateToScripts }) => times(rateToScripts)],
    ['client CPU to raw', ({ clientCpuToRaw }) => times(clientCpuToRaw)],
    rate,
    ...latency,
    ['client CPU µs', ({ clientCpuUs }) => number(clientCpuUs)],
    ['Redis CPU µs', ({ redisCpuUs }) => number(redisCpuUs)],
  ],
  contended: [
    ['time to raw queue', (figures) => times(figures['ms.toBaseline'])],
    ['time ms', ({ ms }) => number(ms)],
    rate,
    ['switches/s', ({ switchesPerSecond }) => number(switchesPerSecond)],
    ['switches a turn', ({ switchShare }) => percent(switchShare)],
    ['wait p50 ms', ({ p50Ms }) => number(p50Ms)],
    ['p99 ms', ({ p99Ms }) => number(p99Ms)],
    ['longest ms', ({ longestWaitMs }) => number(longestWaitMs)],
    ['longest/median', ({ maxToMedian }) => number(maxToMedian)],
    ['turns of a waiter', ({ leastTurns, mostTurns }) => `${number(leastTurns)}–${number(mostTurns)}`],
    ...cost,
    ['lost updates', ({ violations }) => number(violations)],
  ],
  crowd: [
    rate,
    ['time ms', ({ ms }) => number(ms)],
    ['not served', ({ unserved }) => number(unserved)],
    ['most in the queue of Redis', ({ mostInQueue }) => number(mostInQueue)],
    ['objects kept', ({ keptObjects }) => number(keptObjects)],
    ['heap kept, kB a process', ({ heapKbPerProcess }) => number(heapKbPerProcess)],
    ['Redis memory kept, kB', ({ redisKb }) => number(redisKb)],
  ],
  held: [
    ['commands/s', ({ commands }) => number(commands)],
    ['calls/s', ({ calls }) => number(calls)],
    ['client CPU %', ({ clientCpuPercent }) => number(clientCpuPercent)],
    ['to raw', (figures) => times(figures['clientUs.toBaseline'])],
    ['Redis CPU %', ({ redisCpuPercent }) => number(redisCpuPercent)],
    ['event-loop delay p99 ms', ({ loopDelayP99Ms }) => number(loopDelayP99Ms)],
    ['lost', ({ violations }) => number(violations)],
  ],
  'due-together': [
    ['longest hold of the event loop ms', ({ holdMs }) => number(holdMs)],
    ['before', ({ quietHoldMs }) => number(quietHoldMs)],
    ["p99 of another client's command ms", ({ p99Ms }) => number(p99Ms)],
    ['before', ({ quietP99Ms }) => number(quietP99Ms)],
    ['to before', ({ p99ToQuiet }) => times(p99ToQuiet)],
    ['all extended in ms', ({ ms }) => number(ms)],
    ['lost', ({ violations }) => number(violations)],
  ],
  redlock: [
    ...[0, 1, 2].flatMap(stage),
    ['3 stopped: ms until the error', (figures) => number(figures['3.errorMs'])],
    ['which', (figures) => shortened(figures['3.error'])],
  ],
  'redlock-fresh': [...[0, 1, 2].flatMap(stage), commands],
  'second-round-trips': [
    ['acquisitions', ({ turns }) => number(turns)],
    ['begun', ({ begunShare }) => percent(begunShare)],
    ['needed', ({ neededShare }) => percent(neededShare)],
    ['not granted', ({ violations }) => number(violations)],
  ],
  'keys-left': [
    ['locks', ({ turns }) => number(turns)],
    ['keys left', ({ keysLeft }) => number(keysLeft)],
  ],
  'wake-up': [
    ['p50 ms', ({ p50Ms }) => number(p50Ms)],
    ['to raw queue', (figures) => times(figures['p50Ms.toBaseline'])],
    ['p99 ms', ({ p99Ms }) => number(p99Ms)],
    ['to raw queue', (figures) => times(figures['p99Ms.toBaseline'])],
    ['longest ms', ({ maxMs }) => number(maxMs)],
    ['acquired before the release', ({ violations }) => number(violations)],
  ],
  'dead-places': [
    ['turns', ({ turns }) => number(turns)],
    ['undisturbed', ({ undisturbed }) => number(undisturbed)],
    ['of those', ({ share }) => percent(share)],
    ['longest pause ms', ({ longestPauseMs }) => number(longestPauseMs)],
  ],
  'hot-key': ['few', 'some', 'many'].flatMap((name) => [
    ['services', (figures) => number(figures[`${name}.services`])],
    ['turns/s', (figures) => number(figures[`${name}.rate`])],
    ['commands a turn', (figures) => number(figures[`${name}.commands`])],
  ]),
  'cluster-hand-offs': [
    ['hand-offs', ({ turns }) => number(turns)],
    ['messages on the bus, each', ({ messages }) => number(messages)],
    ['bytes on the bus, each', ({ bytes }) => number(bytes)],
    ['wake-up on the same node, p50 ms', ({ sameP50Ms }) => number(sameP50Ms)],
    ['p90 ms', ({ sameP90Ms }) => number(sameP90Ms)],
    ['on another node, p50 ms', ({ otherP50Ms }) => number(otherP50Ms)],
    ['p90 ms', ({ otherP90Ms }) => number(otherP90Ms)],
    ['p90 to same', ({ p90ToSame }) => times(p90ToSame)],
  ],
  waiting: [
    ['calls that wait', ({ waits }) => number(waits)],
    ['failed', ({ failures }) => number(failures)],
    ['keys with a queue in Redis', ({ queuedShare }) => percent(queuedShare)],
    ['commands/s', ({ commands }) => number(commands)],
    ['calls/s', ({ calls }) => number(calls)],
    ['commands/s for 1 000 calls', ({ commandsPer1000 }) => number(commandsPer1000)],
    ['locks lost', ({ violations }) => number(violations)],
    ['error', ({ error }) => shortened(error)],
  ],
  burst: [
    ['calls', ({ turns }) => number(turns)],
    ['failed', ({ failures }) => number(failures)],
    ['all ended in ms', ({ ms }) => number(ms)],
    ['error', ({ error }) => shortened(error)],
  ],
  'held-in-cluster': [
    ['Cluster: commands a round', (figures) => number(figures['cluster.commands'])],
    ['writes a node', (figures) => number(figures['cluster.writesOfNode'])],
    ['client CPU µs a lock', (figures) => number(figures['cluster.clientUs'])],
    ['event loop held ms', (figures) => number(figures['cluster.holdMs'])],
    ['one Redis: commands a round', (figures) => number(figures['one.commands'])],
    ['writes', (figures) => number(figures['one.writesOfNode'])],
    ['client CPU µs a lock', (figures) => number(figures['one.clientUs'])],
    ['CPU to one Redis', ({ clientUsToOne }) => times(clientUsToOne)],
    ['lost', ({ violations }) => number(violations)],
  ],
  sets: [
    ['free: round trips', ({ roundTrips }) => number(roundTrips)],
    ['free: turn p50 ms', (figures) => number(figures['free.p50Ms'])],
    ['p99 ms', (figures) => number(figures['free.p99Ms'])],
    ['overlapping: turns', ({ turns }) => number(turns)],
    rate,
    ['calls a turn', ({ calls }) => number(calls)],
    ['wait p50 ms', ({ p50Ms }) => number(p50Ms)],
    ['p99 ms', ({ p99Ms }) => number(p99Ms)],
    ['longest ms', ({ maxMs }) => number(maxMs)],
    ['beside single locks: sets/s', ({ besideSingles }) => number(besideSingles)],
    ['single locks/s', ({ singles }) => number(singles)],
  ],
  leader: [
    ['wake-up p50 ms', (figures) => number(figures['wake.p50Ms'])],
    ...['resign', 'close'].flatMap((name) => [
      [`${name}: p50 ms`, (figures) => number(figures[`${name}.p50Ms`])],
      ['to wake-up', (figures) => times(figures[`${name}.toWake`])],
      ['longest ms', (figures) => number(figures[`${name}.maxMs`])],
    ]),
    ['kill -9: longest ms', (figures) => number(figures['kill.maxMs'])],
    ['beyond the ttl, ms', (figures) => number(figures['kill.overTtlMs'])],
  ],
  sql: [
    ['one at a time: turns/s', (figures) => number(figures['alone.rate'])],
    ['to INSERT and DELETE', (figures) => times(figures['alone.toRaw'])],
    ['200 in flight: turns/s', (figures) => number(figures['inFlight.rate'])],
    ['to those on 10 connections', (figures) => times(figures['inFlight.toRaw'])],
    ['4 × 25: turns/s', (figures) => number(figures['contended.rate'])],
    ['to advisory locks on 100 connections', (figures) => times(figures['contended.toAdvisory'])],
    ['messages a turn', (figures) => number(figures['contended.statements'])],
    ['wait p99 ms', (figures) => number(figures['contended.p99Ms'])],
    ['wake-up p50 ms', (figures) => number(figures['wakeUp.p50Ms'])],
    ['to a bare NOTIFY', (figures) => times(figures['wakeUp.toNotify'])],
    ['2 000 held: messages/s', ({ heldStatements }) => number(heldStatements)],
    ['kB of the table after 100 000 turns', ({ heapKb }) => number(heapKb)],
    ['lost updates', ({ violations }) => number(violations)],
  ],
  'redlock-far': ROUND_TRIPS_MS.flatMap((ms) => [
    [`${ms} ms: granted`, (figures) => percent(figures[`${ms}.granted`])],
    ['p50 ms', (figures) => number(figures[`${ms}.p50Ms`])],
    ['errors with advice', (figures) => percent(figures[`${ms}.errorsThatAdvise`])],
    ['found by the doctor', (figures) => figures[`${ms}.isFound`]],
  ]),
};

function shortened(error) {
  return error === undefined ? '–' : error.split(':')[0];
}
