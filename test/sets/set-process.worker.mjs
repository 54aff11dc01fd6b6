// A separate process that holds several locks at once; set-process.ts starts it.
import { setImmediate as yieldToEvents } from 'node:timers/promises';
import { load, serve, settings } from '../support/serve-duties.mjs';

const { openLocks } = await load('compose/open-locks.js');
const { service: locks } = await openLocks(settings);
let crowd;

const now = () => String(process.hrtime.bigint());

async function takeTurn({ keys, waitMs }) {
  const askedAt = now();
  const work = async (tokens) => {
    const from = now();
    await yieldToEvents();
    return { keys, tokens, askedAt, from, to: now() };
  };
  const options = waitMs === undefined ? {} : { waitMs };
  return keys.length === 1
    ? locks.withLock(keys[0], options, ({ fencingToken }) => work([fencingToken]))
    : locks.withLock(keys, options, (set) => work(keys.map((key) => set.get(key).fencingToken)));
}

serve({
  async hold(keys, ttlMs) {
    await locks.acquireAll(keys, { ttlMs });
  },
  async turns(wishes, callers) {
    const [turns, refusals, left] = [[], [], wishes.values()];
    const caller = async () => {
      for (const wish of left) {
        await takeTurn(wish).then(
          (turn) => turns.push(turn),
          ({ code }) => refusals.push(code),
        );
      }
    };
    await Promise.all(Array.from({ length: callers }, caller));
    return { turns, refusals };
  },
  crowd(keys, callers) {
    const each = { isOver: false, turns: [] };
    const caller = async (key) => {
      while (!each.isOver) each.turns.push(await takeTurn({ keys: [key] }));
    };
    const all = keys.flatMap((key) => Array.from({ length: callers }, () => caller(key)));
    crowd = { each, all: Promise.all(all) };
  },
  async disperse() {
    crowd.each.isOver = true;
    await crowd.all;
    return crowd.each.turns;
  },
  size: () => locks.size,
});
