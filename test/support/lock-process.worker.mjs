// A separate process that holds locks; lock-process.ts starts it, and sends it messages.
import { setImmediate as yieldToEvents } from 'node:timers/promises';
import { Cluster } from 'ioredis';
import { load, serve, settings } from './serve-duties.mjs';

/** Enough time on a busy machine. */
const commandTimeoutMs = 20_000;
const { clusterPort, clockAheadMs = 0, ...options } = { commandTimeoutMs, ...settings };
const dateOf = Date.now;
Date.now = () => dateOf() + clockAheadMs; // before the library is loaded
const { openLocks } = await load('compose/open-locks.js');
if (clusterPort) options.redis = () => new Cluster([{ host: '127.0.0.1', port: clusterPort }]);
const open = async () => (await openLocks(options)).service;
const locks = await open();
const held = new Map();
let looking;

const duties = {
  async acquire(key, request) {
    const lock = await locks.acquire(key, request);
    held.set(key, lock);
    return { owner: lock.owner, fencingToken: lock.fencingToken };
  },
  async acquirePermits(key, request) {
    const permit = await locks.acquirePermits(key, request);
    held.set(key, permit);
    return { owner: permit.owner };
  },
  async waitInMany(key, services, request) {
    const all = await Promise.all(Array.from({ length: services }, open));
    for (const each of all) void each.acquire(key, request);
  },
  begun: () => {},
  release: (key) => held.get(key).release(),
  isHeld: (key) => held.get(key).isHeld,
  detach: (key, ttlMs) => held.get(key).detach({ ttlMs }),
  extendParcel: (parcel, ttlMs) => locks.extend(parcel, { ttlMs }),
  releaseParcel: (parcel) => locks.release(parcel),
  async adopt(parcel) {
    const lock = await locks.adopt(parcel);
    held.set(parcel.key, lock);
    return { owner: lock.owner, fencingToken: lock.fencingToken };
  },
  async turns(key, { waiters, turns, request }) {
    const served = [];
    const waiter = async () => {
      for (let turn = 0; turn < turns; turn++) {
        await locks.withLock(key, request, async ({ fencingToken }) => {
          const from = String(process.hrtime.bigint());
          await yieldToEvents();
          served.push({ fencingToken, from, to: String(process.hrtime.bigint()) });
        });
      }
    };
    await Promise.all(Array.from({ length: waiters }, waiter));
    return served;
  },
  lookForPause(key, pausedMs) {
    looking = look(held.get(key), pausedMs);
  },
  firstLook: () => looking,
};

async function look(lock, pausedMs) {
  let last = performance.now();
  for (;;) {
    for (const until = last + 20; last < until;) {
      const now = performance.now();
      if (now - last >= pausedMs) return { isHeld: lock.isHeld, aborted: lock.signal.aborted, reason: reasonOf(lock) };
      last = now;
    }
    await yieldToEvents();
  }
}

function reasonOf(lock) {
  try {
    lock.assertHeld();
    return undefined;
  } catch (error) {
    return error.reason;
  }
}

serve(duties);
