import { Redis } from 'ioredis';
import { expect, it, onTestFinished } from 'vitest';
import type { LockService } from 'nest-redis-lock';
import { LockProcess } from '../support/lock-process.js';
import { queued, subscribers, untilSubscribers } from '../support/queue.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, ownerOf, untilQueued } = await sceneOfFile({ commandTimeoutMs: 20_000 }); // on a busy machine

const start = () => LockProcess.start({ redis: server.url });

/** A process that waits for a lock. */
interface Waiting {
  process: LockProcess;
  lock: ReturnType<LockProcess['acquire']>;
}

/** Lets processes wait for a lock that another one holds, until they have said that they listen. */
async function haveWaited(others: LockService, processes: readonly LockProcess[]): Promise<void> {
  const holder = await others.acquire('before');
  const turns = processes.map((process) =>
    process.acquire('before', { waitMs: 60_000 }).then(() => process.release('before')),
  );
  const listening = async () => {
    const signs = (await server.command('ZRANGE', 'lock:{before}:queue', '-inf', '(0', 'BYSCORE')) as string[];
    return signs.filter((sign) => sign.startsWith('h')).length;
  };
  await until(async () => (await listening()) === processes.length, { what: 'they have said that they listen' });
  await holder.release();
  await Promise.all(turns);
}

/** One holds the lock, and two processes wait for it. */
async function queueOf(key: string) {
  const [one, other, others] = [await start(), await start(), await open()];
  await haveWaited(others, [one, other]);
  const holder = await others.acquire(key);
  const both = [one, other].map((process) => ({ process, lock: process.acquire(key, { waitMs: 60_000 }) }));
  await untilQueued(key, 2);
  return { holder, both };
}

/** In the order of their places: a later process may be ahead, by the errors of two clocks. */
async function inOrder(key: string, both: readonly Waiting[]): Promise<[Waiting, Waiting]> {
  const entries = (await server.command('ZRANGE', `lock:{${key}}:queue`, '0', '+inf', 'BYSCORE')) as string[];
  return entries.map((entry) => both.find(({ process }) => entry.includes(`/${process.pid}/`))!) as [Waiting, Waiting];
}

/**
 * Pauses both when each has asked within a second of the other: the release passes over processes that were silent
 * longer than others.
 * @returns them in the order of their places
 */
async function pauseTogether(key: string, both: readonly Waiting[]): Promise<[Waiting, Waiting]> {
  const processes = both.map(({ process }) => process);
  await until(
    async () => {
      for (const process of processes) process.pause();
      const signs = (await server.command(
        'ZRANGE',
        `lock:{${key}}:queue`,
        '-inf',
        '(0',
        'BYSCORE',
        'WITHSCORES',
      )) as string[];
      const times = signs.filter((_, at) => at % 2 === 1 && !signs[at - 1]!.startsWith('n ')).map(Number); // n counts calls
      if (times.length >= processes.length && Math.max(...times) - Math.min(...times) < 1_000_000) return true;
      for (const process of processes) process.resume();
      return false;
    },
    { what: 'both have asked lately' },
  );
  return inOrder(key, both);
}

/** The first ticket to which a release reports a grant from now on. */
async function nextGrant() {
  const listener = new Redis(server.port, '127.0.0.1');
  onTestFinished(() => listener.disconnect());
  const tickets: string[] = [];
  listener.on('pmessage', (_, __, text: string) => {
    const [ticket, token] = text.split(' ');
    if (Number(token) > 0) tickets.push(ticket!);
  });
  await listener.psubscribe('lock:inbox:*');
  return () => until(() => tickets[0], { what: 'a grant is reported' });
}

it('a waiter that was killed while it waited is passed over by the same release [G118]', async () => {
  const { holder, both } = await queueOf('killed');
  const [first, second] = await inOrder('killed', both);
  const listening = await subscribers(server);
  await first.process.kill();
  await untilSubscribers(server, listening - 1);
  expect(await queued(server, 'killed')).toBe(2); // it had no time to report it
  await holder.release();
  const owner = await ownerOf('killed');
  expect(owner).toBe((await second.lock).owner);
  expect(await queued(server, 'killed')).toBe(0);
});

it('a waiter that is killed between grant and confirmation delays the next one for as long as the grant lasts [G119]', async () => {
  const { holder, both } = await queueOf('killed-granted');
  const granted = await nextGrant();
  const [first, second] = await pauseTogether('killed-granted', both);
  await holder.release();
  expect(await granted()).toContain(`/${first.process.pid}/`);
  expect(await server.command('PTTL', 'lock:{killed-granted}')).toBeLessThanOrEqual(2_000);
  await first.process.kill();
  second.process.resume();
  expect((await second.lock).owner).toContain(`/${second.process.pid}/`);
});

it('a waiter that is stopped between grant and confirmation does not hold the lock when it wakes up [G120]', async () => {
  const { holder, both } = await queueOf('stopped');
  const granted = await nextGrant();
  const [first, second] = await pauseTogether('stopped', both);
  let isGranted = false;
  void first.lock.then(() => (isGranted = true));
  await holder.release();
  expect(await granted()).toContain(`/${first.process.pid}/`);
  second.process.resume();
  const lock = await second.lock;
  first.process.resume();
  await untilQueued('stopped'); // it has seen that it was too late, and waits again
  expect(isGranted).toBe(false);
  expect(await ownerOf('stopped')).toBe(lock.owner);
  expect(await second.process.release('stopped')).toBe(true);
  expect((await first.lock).fencingToken).toBeGreaterThan(lock.fencingToken);
});

/** Redis reads its clock once for all commands that it finds together: it may be late by the time that these take. */
const REDIS_CLOCK_MS = 20;
/** Less than the period of the checks. */
const AT_ONCE_MS = 400;

/**
 * The lock can be acquired when its key ends in Redis: not before, and at once. A client that constantly checks
 * measures this: a delay of a busy machine delays the waiter, too.
 */
async function hadAtItsEnd(key: string, waiting: Promise<unknown>): Promise<void> {
  const holder = await ownerOf(key);
  const askedAt = performance.now();
  const remainingMs = (await server.command('PTTL', `lock:{${key}}`)) as number;
  const had = waiting.then(() => performance.now());
  const isOver = async () => (await ownerOf(key)) !== holder;
  await until(isOver, { what: `the lock "${key}" ends`, timeoutMs: 60_000 });
  const overAt = performance.now();
  const hadAt = await had;
  expect(remainingMs).toBeGreaterThan(0);
  expect(hadAt).toBeGreaterThan(askedAt + remainingMs - REDIS_CLOCK_MS);
  expect(hadAt).toBeLessThan(overAt + AT_ONCE_MS);
}

/** A process holds the lock, others wait for it, and the process is killed. */
async function crashed(key: string): Promise<void> {
  const holder = await LockProcess.start({ redis: server.url, ttlMs: 3_000 });
  const services = await Promise.all([1, 2, 3].map(() => open()));
  await holder.acquire(key);
  const calls = services.map((locks) => locks.acquire(key, { waitMs: 20_000 }));
  await untilQueued(key, 3);
  await holder.kill();
  await hadAtItsEnd(key, Promise.race(calls));
  await Promise.all(calls.map(async (call) => (await call).release()));
}

it('a lock whose holder crashed can be acquired at the end of its ttl, even among 100 000 other keys with a ttl [G124]', async () => {
  const fill = `for index = ARGV[1], ARGV[2] do
    redis.call('SET', 'other:' .. index, '', 'PX', 20000 + index % 40000)
  end`;
  for (let start = 0; start < 100_000; start += 10_000) {
    await server.command('EVAL', fill, 0, start, start + 9_999);
  }
  expect(await server.command('DBSIZE')).toBeGreaterThan(90_000);
  await crashed('among others');
  await server.command('FLUSHALL');
});
