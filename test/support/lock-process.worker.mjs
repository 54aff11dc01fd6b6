// A process of its own that holds locks: started by lock-process.ts, told what to do by messages.
import { setImmediate as yieldToEvents } from 'node:timers/promises';
import { pathToFileURL } from 'node:url';

const [library, options] = process.argv.slice(2);
const load = (file) => import(pathToFileURL(`${library}/${file}`).href);
const { LockService } = await load('service/lock.service.js');
const { resolveOptions } = await load('resolve-options.js');
const [locks] = await LockService.open(resolveOptions(JSON.parse(options)));
const held = new Map();
let looking;

const duties = {
  async acquire(key, request) {
    const lock = await locks.acquire(key, request);
    held.set(key, lock);
    return { owner: lock.owner, fencingToken: lock.fencingToken };
  },
  release: (key) => held.get(key).release(),
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

process.on('message', async ({ id, duty, args }) => {
  try {
    process.send({ id, value: await duties[duty](...args) });
  } catch (error) {
    process.send({ id, error: `${error.name}: ${error.message}` });
  }
});
process.on('disconnect', () => process.exit());
process.send({ ready: true });
