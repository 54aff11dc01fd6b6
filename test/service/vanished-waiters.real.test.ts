import { Redis } from 'ioredis';
import { afterAll, beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { queued, subscribers, untilQueued, untilSubscribers } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';
import { haveWaited } from './waiters.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
});
afterAll(() => server.stop());

const open = () => openLocks({ redis: server.url });
const start = () => LockProcess.start({ redis: server.url });
const holderOf = (key: string) => ownerOn(server, key);

/** A process that waits for a lock. */
interface Waiting {
  process: LockProcess;
  lock: ReturnType<LockProcess['acquire']>;
}

/** One holds the lock, and two processes wait for it. */
async function queueOf(key: string) {
  const [one, other, others] = [await start(), await start(), await open()];
  const turnOfProcess = (process: LockProcess) => (each: string) =>
    process.acquire(each, { waitMs: 60_000 }).then(() => process.release(each));
  await haveWaited(server, `before ${key}`, others, turnOfProcess(one), turnOfProcess(other));
  const holder = await others.acquire(key);
  const both = [one, other].map((process) => ({ process, lock: process.acquire(key, { waitMs: 60_000 }) }));
  await untilQueued(server, key, 2);
  return { holder, both };
}

/** In the order of their places: who came later may stand before, by the errors of two clocks. */
async function inOrder(key: string, both: readonly Waiting[]): Promise<[Waiting, Waiting]> {
  const entries = (await server.command('ZRANGE', `lock:{${key}}:queue`, '0', '+inf', 'BYSCORE')) as string[];
  return entries.map((entry) => both.find(({ process }) => entry.includes(`/${process.pid}/`))!) as [Waiting, Waiting];
}

/**
 * Pauses both when each has asked within a second of the other: the release passes over who was silent for longer than others.
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

/** The first ticket that a release tells of a grant from now on, as long as that may be ago. */
async function nextGrant() {
  const listener = new Redis(server.port, '127.0.0.1');
  onTestFinished(() => listener.disconnect());
  const tickets: string[] = [];
  listener.on('pmessage', (_, __, text: string) => {
    const [ticket, token] = text.split(' ');
    if (Number(token) > 0) tickets.push(ticket!);
  });
  await listener.psubscribe('lock:inbox:*');
  return () => until(() => tickets[0], { what: 'a grant is told of' });
}

describe('a waiter that', () => {
  it('a waiter that was killed while it waited is passed over by the same release [G118]', async () => {
    const { holder, both } = await queueOf('killed');
    const [first, second] = await inOrder('killed', both);
    const listening = await subscribers(server);
    await first.process.kill();
    await untilSubscribers(server, listening - 1);
    expect(await queued(server, 'killed')).toBe(2); // it had no time to say so
    await holder.release();
    const owner = await holderOf('killed');
    expect(owner).toBe((await second.lock).owner);
    expect(await queued(server, 'killed')).toBe(0);
  });

  it('a waiter that is killed between grant and confirmation delays the next one for as long as the grant stands [G119]', async () => {
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
    await untilQueued(server, 'stopped', 1); // it has seen that it was too late, and waits again
    expect(isGranted).toBe(false);
    expect(await holderOf('stopped')).toBe(lock.owner);
    expect(await second.process.release('stopped')).toBe(true);
    expect((await first.lock).fencingToken).toBeGreaterThan(lock.fencingToken);
  });
});
