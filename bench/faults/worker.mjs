/**
 * One process of an application: one turn after another under the lock. It writes each event to a file at once, so that
 * kill -9 does not lose it.
 */
import { setClockAhead } from './clock.mjs';
import { openSync, writeSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { nowMs } from '../cell/statistics.mjs';
import { loadContestant } from '../contestants/index.mjs';
import { randomOf } from './random.mjs';

const LOOK_MS = 20; // how often the work asks whether it still holds the lock
const TICK_MS = 50;

const { contestant, key, journal, workMs, seed, ...terms } = JSON.parse(process.argv[2]);
const file = openSync(journal, 'a');
const random = randomOf(seed);

const note = (what, more = {}) => writeSync(file, `${JSON.stringify({ what, at: nowMs(), ...more })}\n`);
const tell = (what) => process.send({ what });

let isResting = true;
let isStopping = false;
let order; // the next turn, if the fault needs one
let sequence = 0;
const replies = new Map();
process.on('disconnect', () => process.exit());
process.on('message', ({ reply, rest, order: ordered, aheadMs, stop }) => {
  if (reply) replies.get(reply.id)(reply.value);
  if (rest !== undefined) isResting = rest;
  if (ordered) order = ordered;
  if (aheadMs !== undefined) setClockAhead(aheadMs);
  if (stop) isStopping = true;
});

/** Asks the resource, which is in another process. */
function ask(call, more, onSent) {
  const id = ++sequence;
  return new Promise((resolve) => {
    replies.set(id, resolve);
    process.send({ ask: { id, call, ...more } }, onSent);
  }).finally(() => replies.delete(id));
}

for (const level of ['log', 'warn', 'error']) console[level] = () => {};
const library = await (await loadContestant(contestant)).open(terms);
// Errors that would end a Node.js process are counted, and the process continues.
for (const event of ['unhandledRejection', 'uncaughtException'])
  process.on(event, (error) => note('unhandled', { error: textOf(error) }));

const textOf = (error) => `${error?.code ?? error?.name}: ${error?.message ?? error}`.slice(0, 150);

async function takeTurn({ holdMs, blockAtMs = Infinity, blockMs, writeDelayMs, isOrdered = false }) {
  const turn = ++sequence;
  note('ask', { turn, isOrdered });
  try {
    const answer = await library.turn(key, async ({ held, token }) => {
      note('begin', { turn, token });
      const begin = nowMs();
      if (isOrdered) tell('begun');
      const base = await ask('read', { token });
      let believed = begin;
      let knew;
      while (knew === undefined && nowMs() - begin < holdMs) {
        if (nowMs() - begin > blockAtMs) {
          blockAtMs = Infinity;
          Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, blockMs);
        } else await sleep(Math.max(1, Math.min(LOOK_MS, begin + holdMs - nowMs())));
        if (held()) believed = nowMs();
        else knew = nowMs();
      }
      if (knew === undefined)
        await ask('write', { base, token, delayMs: writeDelayMs }, () => isOrdered && tell('sent'));
      note('end', { turn, believed, knew });
    });
    note('done', { turn, answer });
  } catch (error) {
    note('failed', { turn, error: textOf(error) });
    await sleep(TICK_MS);
  }
}

// Warm-up: it opens connections and loads scripts, and the nodes of a Redlock begin to vote.
while (
  !(await library
    .turn(`warm-${process.pid}`, async () => {})
    .then(
      () => true,
      () => sleep(200),
    ))
);
tell('ready');
let stallMs = 0;
let last = nowMs();
setInterval(() => {
  stallMs = Math.max(stallMs, nowMs() - last - TICK_MS);
  last = nowMs();
}, TICK_MS).unref();

let hasToldRest = true; // nobody has asked yet
while (!isStopping) {
  if (order) {
    const ordered = { ...order, isOrdered: true };
    order = undefined;
    await takeTurn(ordered);
    tell('over');
  } else if (isResting) {
    if (!hasToldRest) tell('resting');
    hasToldRest = true;
    await sleep(10);
  } else {
    hasToldRest = false;
    await takeTurn({ holdMs: workMs ?? random(30, 120) });
    await sleep(random(20, 80));
  }
}
note('stopped', { stallMs });
tell('stopped');
