/**
 * Ratios of the library to the raw client, on one redis-server that it starts, in one process: short slices in turn, so
 * that the drift of a shared machine meets both alike. Prints the median of the slice-by-slice ratios.
 *
 *   npm run bench [-- --seconds 10]
 */
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { fileURLToPath } from 'node:url';
import { randomUUID } from 'node:crypto';
import { Redis } from 'ioredis';
import 'reflect-metadata';
import { LockService } from '../dist/esm/service/lock.service.js';
import { resolveOptions } from '../dist/esm/resolve-options.js';

const seconds = Number(process.argv[process.argv.indexOf('--seconds') + 1]) || 10;
const SLICE_MS = 100;
const TTL_MS = 30_000;
const COMPARE_AND_DELETE = `if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end return 0`;

const { server, port } = await startRedis();
const client = new Redis({ host: '127.0.0.1', port });
const sha = await client.script('LOAD', COMPARE_AND_DELETE);
const [locks] = await LockService.open(resolveOptions({ redis: client }));

let sequence = 0;
async function raw() {
  const key = `raw:${sequence++ % 10_000}`;
  const value = randomUUID();
  if ((await client.set(key, value, 'PX', TTL_MS, 'NX')) !== 'OK') throw new Error('not acquired');
  await client.evalsha(sha, 1, key, value);
}
async function ours() {
  const lock = await locks.acquire(`ours:${sequence++ % 10_000}`);
  await lock.release();
}

try {
  console.log(`| acquire + release, ${seconds} s | library / raw | slices |\n|---|---|---|`);
  for (const inFlight of [1, 200]) {
    const { median, p10, p90, slices } = await compare(ours, raw, inFlight);
    const name = inFlight === 1 ? 'one at a time' : `${inFlight} in flight, different keys`;
    console.log(`| ${name} | ${median.toFixed(2)} × (p10 ${p10.toFixed(2)}, p90 ${p90.toFixed(2)}) | ${slices} |`);
  }
  await hold(2_000, 3_000, 10);
} finally {
  await locks.onApplicationShutdown();
  client.disconnect();
  server.kill();
}

async function compare(a, b, inFlight) {
  for (const work of [a, b]) await slice(work, inFlight, 1_000); // warm up
  const ratios = [];
  for (const end = Date.now() + seconds * 1_000; Date.now() < end;) {
    const [first, second] = ratios.length % 2 === 0 ? [a, b] : [b, a];
    const rates = new Map([
      [first, await slice(first, inFlight, SLICE_MS)],
      [second, await slice(second, inFlight, SLICE_MS)],
    ]);
    ratios.push(rates.get(a) / rates.get(b));
  }
  ratios.sort((x, y) => x - y);
  const at = (part) => ratios[Math.floor(part * (ratios.length - 1))];
  return { median: at(0.5), p10: at(0.1), p90: at(0.9), slices: ratios.length };
}

/** Many locks at once, kept by the watchdog: what that costs Redis, and how many are lost. */
async function hold(count, ttlMs, heldSeconds) {
  const held = await Promise.all(
    Array.from({ length: count }, (_, index) => locks.acquire(`held:${index}`, { ttlMs })),
  );
  await client.config('RESETSTAT');
  const cpu = process.cpuUsage();
  await new Promise((resolve) => setTimeout(resolve, heldSeconds * 1_000));
  const { user, system } = process.cpuUsage(cpu);
  const calls = Number(/cmdstat_evalsha:calls=(\d+)/.exec(await client.info('commandstats'))?.[1] ?? 0);
  const lost = held.filter((lock) => !lock.isHeld).length;
  await Promise.all(held.map((lock) => lock.release()));
  console.log(
    `\n${count} locks with a ttl of ${ttlMs} ms, held for ${heldSeconds} s: ${(calls / heldSeconds).toFixed(1)} Redis calls/s`,
  );
  console.log(
    `(one for each lock and renewal: ${(count / (ttlMs / 3_000)).toFixed(0)}), ${lost} lost, client CPU ${((user + system) / heldSeconds / 10_000).toFixed(1)} %`,
  );
}

/** Turns per second of `inFlight` loops that run for `ms`. */
async function slice(work, inFlight, ms) {
  const start = performance.now();
  let turns = 0;
  const loop = async () => {
    while (performance.now() - start < ms) {
      await work();
      turns++;
    }
  };
  await Promise.all(Array.from({ length: inFlight }, loop));
  return (turns / (performance.now() - start)) * 1_000;
}

async function startRedis() {
  const port = 20_000 + Math.floor(Math.random() * 10_000);
  const own = fileURLToPath(new URL('../.redis/redis-server', import.meta.url)); // unpacked by the tests
  const binary = process.env.REDIS_SERVER ?? (existsSync(own) ? own : 'redis-server');
  const server = spawn(binary, ['--port', String(port), '--save', '', '--appendonly', 'no'], { stdio: 'pipe' });
  await Promise.race([
    once(server.stdout, 'data').then(() => waitFor(port)),
    once(server, 'error').then(([error]) => {
      throw new Error(
        `redis-server cannot be started (${error.message}): install it, or set REDIS_SERVER to its path.`,
      );
    }),
  ]);
  return { server, port };
}

async function waitFor(port) {
  const probe = new Redis({ host: '127.0.0.1', port, maxRetriesPerRequest: null });
  await probe.ping();
  probe.disconnect();
}
