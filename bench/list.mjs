/**
 * Measures what `LockService.list()` costs on a Redis with many keys of other programs: docs/who-holds-what.md has its figures.
 *
 *     npm run build && node bench/list.mjs
 */
import { startRedisServer } from './cell/redis-servers.mjs';
import { median } from './cell/statistics.mjs';
import { library } from './contestants/library.mjs';
import { provideRedisServer } from './provide-redis-server.mjs';
import { number, table } from './report/format.mjs';

const [FOREIGN, LOCKS, LISTS, TURNS] = [1_000_000, 200, 9, 300];
const KEYS_PER_CALL = 10_000;

await provideRedisServer();
const server = await startRedisServer();
const { control } = server;
try {
  const fill = `for i = ARGV[1], ARGV[2] do redis.call('SET', 'session:' .. i, 'x') end`;
  for (let at = 0; at < FOREIGN; at += KEYS_PER_CALL) await control.eval(fill, 0, at, at + KEYS_PER_CALL - 1);
  const { openLocks } = await library('compose/open-locks.js');
  const { service: locks } = await openLocks({ redis: `redis://127.0.0.1:${server.port}`, ttlMs: 600_000 });
  await Promise.all(Array.from({ length: LOCKS }, (_, index) => locks.acquire(`order:${index}`)));

  const lists = [];
  for (let round = 0; round <= LISTS; round++) {
    await control.config('RESETSTAT');
    const since = performance.now();
    const { locks: found, complete, scanned } = await locks.list({ budgetMs: 60_000 });
    const wallMs = performance.now() - since;
    if (found.length !== LOCKS || !complete) throw new Error(`Expected ${LOCKS} locks, got ${found.length}.`);
    if (round === 0) continue; // warms up
    const [scan, look] = [await usage('scan'), await usage('evalsha')];
    lists.push([scanned, scan.calls, scan.us / scan.calls, (scan.us + look.us) / 1_000, wallMs]);
  }
  const head = ['keys', 'calls of SCAN', 'µs of Redis for each', 'ms of Redis in all', 'ms until it is there'];
  const medians = head.map((_, column) => number(median(lists.map((list) => list[column]))));
  console.log(`${table(head, [medians])}\n\nMedians of ${LISTS} lists of ${LOCKS} locks.`);

  const alone = await turnMs(locks);
  const listing = locks.list({ budgetMs: 60_000 });
  const meanwhile = await turnMs(locks);
  await listing;
  console.log(
    `\nA lock is taken and given back in ${number(alone)} ms, while a list is made in ${number(meanwhile)} ms (medians).`,
  );
} finally {
  server.kill();
}
process.exit();

/** How often a command has run, and how long in total, in microseconds. */
async function usage(command) {
  const info = await control.info('commandstats');
  const [, calls, us] = new RegExp(`^cmdstat_${command}:calls=(\\d+),usec=(\\d+)`, 'm').exec(info) ?? [0, 0, 0];
  return { calls: Number(calls), us: Number(us) };
}

/** The median time for one lock. */
async function turnMs(locks) {
  const times = [];
  for (let turn = 0; turn < TURNS; turn++) {
    const since = performance.now();
    await locks.withLock(`turn:${turn}`, () => {});
    times.push(performance.now() - since);
  }
  return median(times);
}
