/**
 * Measures the cost of the library's operations on one Redis: docs/scale.md and bench/scale.mjs use its figures.
 *
 *     npm run build && node --expose-gc bench/costs.mjs
 *
 * CPU means the CPU time of the client process and of the server. Bytes are what the server read and wrote, by `INFO stats`.
 * The memory of the process is its heap after garbage collection, with many of something and without; the memory of Redis
 * is `MEMORY USAGE`.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { redisCpuUs, scriptCalls, startRedisServer } from './cell/redis-servers.mjs';
import { startRedisCluster } from './cell/redis-cluster.mjs';
import { cpuUs, sum } from './cell/statistics.mjs';
import { open, openMany } from './contestants/library.mjs';
import { provideRedisServer } from './provide-redis-server.mjs';
import { number, table } from './report/format.mjs';
import { hold } from './scenarios/overload.mjs';
import { freshKeys, turns } from './scenarios/turns-in-slices.mjs';

const ROUNDS = 3;
const TURNS = 10_000;
const HELD = 20_000;
const WAITS = 5_000;
const PLACES = 50;
const PUBLISHED = 20_000;
/** As long as the keys of the library, and in a slot of the first node. */
const CHANNEL = 'lock:inbox:2:host-name/12345/abcdefghijkl:{bar}';

await provideRedisServer();
const server = await startRedisServer();
const { control } = server;
const terms = { ports: [server.port], ttlMs: 30_000, waitMs: 600_000 };
const operations = [];
const sizes = [];
const messages = [];

try {
  await takeTurns(1);
  await takeTurns(50);
  await handOver();
  await holdMany();
  await waitForMany();
  await waitForOne();
  await publish();
} finally {
  server.kill();
}
console.log(table(['one', 'commands', 'client CPU µs', 'Redis CPU µs', 'bytes to Redis', 'bytes back'], operations));
console.log(`\n${table(['each', 'bytes in the process', 'bytes in Redis'], sizes)}`);
console.log(
  `\n${table(['a message in a Cluster of 3', 'µs of the node of the lock', 'of each other node'], messages)}`,
);
process.exit();

async function takeTurns(inFlight) {
  const locks = await open(terms);
  const nextKey = freshKeys('order');
  const take = () => turns(locks, nextKey, { count: TURNS, inFlight });
  await take(); // warm up
  await measure(`turn on a key of its own, ${inFlight} in flight`, take, () => TURNS);
  await locks.close();
}

async function handOver() {
  const services = await openMany(terms, 2);
  const each = async (service) => {
    for (let turn = 0; turn < TURNS / 2; turn++) await service.release(await service.acquire('handed over'));
  };
  const take = () => Promise.all(services.map(each));
  await take(); // warm up
  await measure('turn on one key, in turn with another process', take, () => TURNS);
  for (const service of services) await service.close();
}

async function holdMany() {
  const locks = await open(terms);
  const ttlMs = 6_000;
  const before = await heap();
  const held = await Promise.all(Array.from({ length: HELD }, (_, index) => locks.hold(`held:${index}`, ttlMs)));
  sizes.push(['held lock', number(((await heap()) - before) / HELD), await memoryOf('lock:{held:777}')]);
  await sleep(ttlMs);
  const count = () => callsOf('pexpire');
  await measure(`extension of one of ${HELD} held locks`, () => sleep(ttlMs), count);
  await Promise.all(held.map((lock) => lock.release()));
  await locks.close();
}

async function waitForMany() {
  const locks = await open(terms);
  await hold(control, WAITS);
  const before = await heap();
  const waits = Array.from({ length: WAITS }, (_, index) => locks.acquire(`awaited:${index}`));
  await sleep(3_000);
  const bytes = [number(((await heap()) - before) / WAITS), await memoryOf('lock:{awaited:777}:queue')];
  sizes.push(['call that waits for a key of its own, with the queue of that key', ...bytes]);
  const seconds = 4;
  const count = () => WAITS * seconds;
  await measure(`check of one of ${WAITS} keys that are waited for`, () => sleep(seconds * 1_000), count);
  await control.del(...waits.map((_, index) => `lock:{awaited:${index}}`));
  await Promise.all(waits.map(async (lock) => locks.release(await lock)));
  await locks.close();
}

/** Calls of one process in sequence; then processes in a queue. */
async function waitForOne() {
  await hold(control, 1);
  const [first, ...others] = await openMany(terms, PLACES);
  const before = await heap();
  for (let index = 0; index < WAITS; index++) void first.acquire('awaited:0');
  await sleep(2_000);
  sizes.push(['call that waits behind others of its process', number(((await heap()) - before) / WAITS), 0]);
  const queue = 'lock:{awaited:0}:queue';
  const alone = await memoryOf(queue);
  for (const each of others) void each.acquire('awaited:0');
  await sleep(2_000);
  sizes.push(['further process in the queue of a key', '', number(((await memoryOf(queue)) - alone) / others.length)]);
}

/** The cost of a message to all nodes of a Cluster, for the node that sends it and for each node that gets it. */
async function publish() {
  const scratch = mkdtempSync(join(tmpdir(), 'costs-'));
  const nodes = await startRedisCluster(3, scratch);
  const [sender, ...others] = nodes.map((node) => node.control);
  const message = 'm'.repeat(CHANNEL.length);
  for (const command of ['publish', 'spublish']) {
    const cpuOf = (clients) => Promise.all(clients.map(redisCpuUs)).then(sum);
    const [senderBefore, othersBefore] = [await cpuOf([sender]), await cpuOf(others)];
    for (let count = 0; count < PUBLISHED; count++) await sender[command](CHANNEL, message);
    const sent = ((await cpuOf([sender])) - senderBefore) / PUBLISHED;
    const received = ((await cpuOf(others)) - othersBefore) / PUBLISHED / others.length;
    messages.push([`\`${command.toUpperCase()}\``, number(sent), number(received)]);
  }
  for (const node of nodes) node.kill();
  rmSync(scratch, { recursive: true });
}

/**
 * The minimum of several rounds: other work of the machine only adds to it.
 * @param counted how many operations `work` has done
 */
async function measure(what, work, counted) {
  const rounds = [];
  for (let round = 0; round < ROUNDS; round++) {
    await control.config('RESETSTAT');
    const redisBefore = await redisCpuUs(control);
    const before = process.cpuUsage();
    await work();
    const clientUs = cpuUs(before);
    const redisUs = (await redisCpuUs(control)) - redisBefore;
    const totals = [await scriptCalls(control), clientUs, redisUs, ...(await bytesOf())];
    const count = await counted();
    rounds.push(totals.map((total) => total / count));
  }
  operations.push([what, ...rounds[0].map((_, column) => number(Math.min(...rounds.map((round) => round[column]))))]);
}

async function bytesOf() {
  const info = await control.info('stats');
  return ['input', 'output'].map((name) => Number(new RegExp(`total_net_${name}_bytes:(\\d+)`).exec(info)[1]));
}

async function callsOf(command) {
  return Number(new RegExp(`cmdstat_${command}:calls=(\\d+)`).exec(await control.info('commandstats'))[1]);
}

function memoryOf(key) {
  return control.memory('USAGE', key, 'SAMPLES', 0);
}

/** The minimum of several samples: what is in flight changes between them. */
async function heap() {
  let least = Infinity;
  for (let look = 0; look < 5; look++) {
    globalThis.gc();
    least = Math.min(least, process.memoryUsage().heapUsed);
    await sleep(130);
  }
  return least;
}
