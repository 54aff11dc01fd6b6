// A separate process that takes part in elections; leader-process.ts starts it.
import { appendFileSync } from 'node:fs';
import { setTimeout as sleep } from 'node:timers/promises';
import { load, serve, settings } from '../support/serve-duties.mjs';

const { openLocks } = await load('compose/open-locks.js');
const { name, journal, options } = settings;
const { service: locks } = await openLocks(options);

/** How long the work continues after the request to end, in milliseconds. */
const ENDS_IN_MS = 30;
const campaigns = new Map();

function note(type, { term }, at = process.hrtime.bigint()) {
  appendFileSync(journal, `${JSON.stringify({ process: name, type, term, at: String(at) })}\n`);
}

/** Checks the lock as long as it is held, or until the work has to end. */
async function work(leadership) {
  const { signal } = leadership;
  note('began', leadership);
  for (let endsAt = Infinity; performance.now() < endsAt;) {
    const at = process.hrtime.bigint();
    try {
      leadership.assertHeld();
    } catch {
      note('late', leadership);
      break;
    }
    note('held', leadership, at);
    if (signal.aborted) endsAt = Math.min(endsAt, performance.now() + ENDS_IN_MS);
    await sleep(1);
  }
  note('ended', leadership);
}

serve({
  campaign(key, request) {
    campaigns.set(key, locks.leader(key, request));
    locks.whileLeader(key, request, work);
  },
  resign: (key) => campaigns.get(key).resign(),
  close: () => locks.onApplicationShutdown(),
});
