/**
 * Computes what a Cluster costs that is too large to measure, from the measured costs of single operations, and prints the
 * tables of docs/scale.md: `node bench/scale.mjs`. It starts nothing.
 */
import { sum } from './cell/statistics.mjs';
import { number, table } from './report/format.mjs';

/** The inputs: the meaning of a number, and the number. */
const load = {
  processes: ['processes, with one lock service each', 1_000],
  masters: ['masters, with one replica each', 100],
  turns: ['locks taken and given back a second, as many by each process and on each master', 1_000_000],
  contested: ['of these, locks that are handed over to another process', 10_000],
  turnMs: ['ms for which one of these is held', 20],
  held: ['more locks that are held for long', 1_000_000],
  extendMs: ['ms between two extensions: a third of the default ttl', 10_000],
  awaited: ['more calls that wait, each for a key of its own, while nothing moves', 100_000],
};

/** The cost of one operation: the meaning of a number, the number, and its source. */
const costs = {
  redisUs: ['µs of Redis for a command that is sent alone', 13, '`bench/costs.mjs`: half of a turn'],
  clientUs: ['µs of the process for it', 15, '`bench/costs.mjs`: half of a turn'],
  bytes: ['bytes there and back for it', 187, '`bench/costs.mjs`: half of a turn'],
  turn: ['commands for a turn', 2, 'row `one-at-a-time`'],
  contestedTurn: ['commands for a turn that is handed over', 3, 'row `hot-key`'],
  contestedUs: ['µs of Redis for such a turn, with its message', 55, '`bench/costs.mjs`'],
  extension: [
    'commands for an extension, at most: few locks of a process on one node are due together',
    1,
    'row `held-cluster`',
  ],
  check: ['commands a second for a key that a process waits for: few of these are in one slot', 1, 'row `waits-10k`'],
  messageBytes: ['bytes of a message on the bus', 2_340, 'row `hand-offs-cluster-3`'],
  sentUs: ['µs of the node that sends it, for each node that gets it', 2.5, '`bench/costs.mjs`: the difference'],
  receivedUs: ['µs of each node that gets it', 2.5, '`bench/costs.mjs`'],
  heldInProcess: ['bytes of the process for a lock that it holds', 885, '`bench/costs.mjs`'],
  heldInRedis: ['bytes of Redis for it', 120, '`bench/costs.mjs`'],
  waitingInProcess: ['bytes of the process for a call that waits', 1_517, '`bench/costs.mjs`'],
  waitingInRedis: ['bytes of Redis for the queue of its key', 264, '`bench/costs.mjs`'],
};

const valuesOf = (named) => Object.fromEntries(Object.entries(named).map(([name, [, value]]) => [name, value]));
const { processes, masters, turns, contested, turnMs, held, extendMs, awaited } = valuesOf(load);
const cost = valuesOf(costs);

/** How a hand-over is published: to how many other nodes, and how many connections a process has for its messages. */
const WAYS = [
  { name: '`PUBLISH`', nodes: 2 * masters - 1, connections: 2 },
  { name: '`SPUBLISH`', nodes: 1, connections: masters },
];

const commands = {
  turns: (turns - contested) * cost.turn,
  contested: contested * cost.contestedTurn,
  extensions: (held / extendMs) * 1_000 * cost.extension,
  checks: awaited * cost.check,
};
const allCommands = sum(Object.values(commands));
const usOfMaster = {
  turns: (commands.turns * cost.redisUs) / masters,
  contested: (contested * cost.contestedUs) / masters,
  extensions: (commands.extensions * cost.redisUs) / masters,
  checks: (commands.checks * cost.redisUs) / masters,
};
const messages = ({ nodes }) => contested * nodes;
const busUs = (way) => (messages(way) * cost.sentUs) / masters + (messages(way) * cost.receivedUs) / (2 * masters);
const heldAtOnce = held + (turns * turnMs) / 1_000;
const LINK = 125e6; // bytes a second of 1 Gbit/s

/** The results: the meaning of a text, and how it is computed for one way to publish. */
const results = [
  ['a master: connections', (way) => number(processes + (processes * way.connections) / masters)],
  ['a master: its thread, with turns of locks that are free', () => ofThread(usOfMaster.turns)],
  ['with turns that are handed over', () => ofThread(usOfMaster.contested)],
  ['with extensions', () => ofThread(usOfMaster.extensions)],
  ['with checks', () => ofThread(usOfMaster.checks)],
  ['with messages on the bus', (way) => ofThread(busUs(way))],
  ['with all of these', (way) => ofThread(sum(Object.values(usOfMaster)) + busUs(way))],
  ['a master: traffic with clients, a second', () => megabytes((allCommands / masters) * cost.bytes)],
  ['a master: sent over the bus, a second', (way) => megabytes((messages(way) / masters) * cost.messageBytes)],
  ['a master: memory', () => megabytes(memory(cost.heldInRedis, cost.waitingInRedis) / masters)],
  ['a process: connections', (way) => number(masters + way.connections)],
  ['a process: commands a second', () => number(allCommands / processes)],
  ['a process: its thread', () => ofThread((allCommands / processes) * cost.clientUs)],
  ['a process: memory', () => megabytes(memory(cost.heldInProcess, cost.waitingInProcess) / processes)],
  ['the Cluster: traffic on the bus, a second', (way) => megabytes(messages(way) * cost.messageBytes)],
  [
    'the Cluster: hand-overs a second that fill links of 1 Gbit/s',
    (way) => number((LINK * masters) / (way.nodes * cost.messageBytes)),
  ],
];

console.log(table(['assumed', 'number'], tableRows(load)));
console.log(`\n${table(['measured', 'number', 'by'], tableRows(costs))}`);
const lines = results.map(([what, compute]) => [what, ...WAYS.map(compute)]);
console.log(`\n${table(['it follows', ...WAYS.map(({ name }) => name)], lines)}`);

function tableRows(named) {
  return Object.values(named).map(([what, value, ...source]) => [what, number(value), ...source]);
}

function memory(ofHeld, ofWaiting) {
  return heldAtOnce * ofHeld + awaited * ofWaiting;
}

function ofThread(us) {
  return `${number(us / 10_000)} %`;
}

function megabytes(bytes) {
  return `${number(bytes / 1e6)} MB`;
}
