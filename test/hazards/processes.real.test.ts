import type { Redis } from 'ioredis';
import { afterAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { tryLock } from '../support/naive.js';
import { openLocks } from '../support/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { clientOf, NaiveProcess, redisServer, serverOfFile } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';
import { until } from '../support/until.js';
import { FencedStore } from './fenced-store.js';

const server = await serverOfFile();
/** A process that tests stop, and the last one kills. */
const stoppable = await LockProcess.start({ redis: server.url }, afterAll);

describe('H1: the holder crashes between two commands', () => {
  it('a naive lock of SETNX and PEXPIRE stays forever when its holder crashes between the two', async () => {
    const server = await redisServer();
    const holder = NaiveProcess.start(
      server,
      `await redis.setnx('lock', 'A');
       say('has it');
       await told(); // killed here
       await redis.pexpire('lock', 100);`,
    );
    await holder.says('has it');
    await holder.kill();
    expect(await server.command('PTTL', 'lock')).toBe(-1); // no end
    expect(await clientOf(server).setnx('lock', 'B')).toBe(0);
  });

  it('this library leaves no lock without an end when the holder crashes, and a waiter gets it when the ttl has passed [G148]', async () => {
    const server = await redisServer();
    const ttlMs = 60_000;
    const holder = await LockProcess.start({ redis: server.url, ttlMs });
    const keys = Array.from({ length: 300 }, (_, index) => `job ${index}`);
    const [first] = keys.map((key) => holder.acquire(key));
    await first;
    await holder.kill(); // amid the others

    const left = await server.keys('lock:{*}');
    expect(left).toContain('lock:{job 0}');
    const ttls = await Promise.all(left.map((name) => server.command('PTTL', name)));
    expect(ttls.filter((ms) => ms === -1 || Number(ms) > ttlMs)).toEqual([]);

    const locks = await openLocks({ redis: server.url });
    await server.command('PEXPIRE', 'lock:{job 0}', 1_000); // all but the last second passes
    const askedAt = performance.now();
    const remainingMs = Number(await server.command('PTTL', 'lock:{job 0}'));
    const next = await locks.acquire('job 0', { waitMs: ttlMs / 2 });
    expect(next.isHeld).toBe(true);
    expect(performance.now()).toBeGreaterThan(askedAt + remainingMs - 2);
  });
});

const HOUR_MS = 3_600_000;
const DEFAULT_TTL_MS = 30_000;

/** The lock of the old SETNX page: its value is the time at which it ends, by the clock of its taker. */
class TimestampLock {
  constructor(
    private readonly redis: Redis,
    private readonly clock: () => number,
  ) {}

  /** @returns the end of the lock, undefined if it is taken */
  async lock(ttlMs: number): Promise<number | undefined> {
    const mine = this.clock() + ttlMs;
    if ((await this.redis.setnx('lock', mine)) === 1) return mine;
    return (await this.looksEnded()) ? this.overwrite(mine) : undefined;
  }

  async looksEnded(): Promise<boolean> {
    return Number(await this.redis.get('lock')) < this.clock();
  }

  async overwrite(mine: number): Promise<number | undefined> {
    return Number(await this.redis.getset('lock', mine)) < this.clock() ? mine : undefined;
  }

  async unlock(mine: number): Promise<boolean> {
    return Number(await this.redis.get('lock')) === mine && (await this.redis.del('lock')) === 1;
  }
}

describe('H4: the clients compute the end of the lease', () => {
  it('a naive timestamp lock has two holders when one clock is ahead', async () => {
    const server = await redisServer();
    const a = new TimestampLock(clientOf(server), Date.now);
    const ahead = new TimestampLock(clientOf(server), () => Date.now() + HOUR_MS);
    expect(await a.lock(60_000)).toBeDefined();
    expect(await ahead.lock(60_000)).toBeDefined();
  });

  it("a naive timestamp lock cannot be given back when a loser has overwritten the winner's time", async () => {
    const server = await redisServer();
    await server.command('SET', 'lock', Date.now() - 1); // of a holder that crashed
    const [a, b] = [new TimestampLock(clientOf(server), Date.now), new TimestampLock(clientOf(server), Date.now)];
    expect([await a.looksEnded(), await b.looksEnded()]).toEqual([true, true]); // both look before either writes
    const mine = await a.overwrite(Date.now() + 60_000);
    expect(mine).toBeDefined();
    expect(await b.overwrite(Date.now() + 90_000)).toBeUndefined(); // lost, but its time is written
    expect(await a.unlock(mine!)).toBe(false);
    expect(await b.lock(60_000)).toBeUndefined(); // nobody holds it, and nobody can have it
  });

  it('this library uses only the clock of Redis: there is one holder, and the losers change nothing [G151]', async () => {
    const [crashed, inTime] = [await LockProcess.start({ redis: server.url }), stoppable];
    const wall = Date.now.bind(Date);
    const clock = vi.spyOn(Date, 'now').mockImplementation(() => wall() + HOUR_MS);
    onTestFinished(() => clock.mockRestore());
    const ahead = await openLocks({ redis: server.url });

    await crashed.acquire('key');
    expect(await ahead.tryAcquire('key')).toBeNull();
    await crashed.kill();
    await server.command('PEXPIRE', 'lock:{key}', 500); // nearly all of the ttl passes
    const waiting = { waitMs: DEFAULT_TTL_MS };
    const race = [
      inTime.acquire('key', waiting).then(({ owner }) => ({ owner, release: () => inTime.release('key') })),
      ahead.acquire('key', waiting),
    ];
    const winner = await Promise.race(race);
    await expect(inTime.acquire('key', { waitMs: 0 })).rejects.toThrow('LockContendedError');
    expect(await ahead.tryAcquire('key')).toBeNull();
    expect(await ownerOn(server, 'key')).toBe(winner.owner);
    expect(await server.command('PTTL', 'lock:{key}')).toBeLessThanOrEqual(DEFAULT_TTL_MS);
    expect(await winner.release()).toBe(true); // a lock that still belongs to it
    const [one, other] = await Promise.all(race);
    expect(one!.owner).not.toBe(other!.owner);
    expect(await server.command('PTTL', 'lock:{key}')).toBeLessThanOrEqual(DEFAULT_TTL_MS);
  });
});

/** As long as the pause of the holder: far longer than a busy machine stops a process. */
const TTL_MS = 2_000;

describe('H6: the holder is paused, and writes when it wakes', () => {
  it('a naive lock lets a paused holder overwrite the work of the next one, even if it checks before each write', async () => {
    const server = await redisServer();
    const b = clientOf(server);
    const a = NaiveProcess.start(
      server,
      `await redis.set('lock', 'A', 'PX', 60_000, 'NX');
       if ((await redis.get('lock')) === 'A') {
         say('mine');
         await told(); // stopped here
         await redis.set('stock', 'as A saw it');
         say('written');
       }`,
    );
    await a.says('mine');
    a.pause();
    await server.command('PEXPIRE', 'lock', 1); // all but the end of the ttl passes
    await until(() => tryLock(b, 'lock', 'B', 60_000), { what: 'B has the lock' });
    await b.set('stock', 'as B sold it');
    a.tell();
    a.resume();
    await a.says('written');
    expect(await b.get('lock')).toBe('B');
    expect(await b.get('stock')).toBe('as A saw it');
  });

  it('this library reports the loss in the first line that a paused holder runs, and the resource refuses its late write [G154]', async () => {
    const stock = new FencedStore();
    const [a, b] = [stoppable, await openLocks({ redis: server.url })];

    const lockOfA = await a.acquire('paused', { ttlMs: TTL_MS });
    expect(stock.write('as A counted it', lockOfA.fencingToken)).toBe(true);
    await a.lookForPause('paused', TTL_MS); // no shorter pause certainly ends its lease
    onTestFinished(() => a.resume());
    a.pause();
    const stoppedAt = performance.now();
    const lockOfB = await b.acquire('paused');
    expect(stock.write('as B sold it', lockOfB.fencingToken)).toBe(true);
    await until(() => performance.now() > stoppedAt + TTL_MS + 50, { what: "A's lease is over wherever it was" });
    a.resume();

    // `assertHeld()` throws a loss with this reason.
    expect(await a.firstLook()).toEqual({ isHeld: false, aborted: true, reason: 'stalled' });
    expect(lockOfB.fencingToken).toBeGreaterThan(lockOfA.fencingToken);
    expect(stock.write('as A saw it', lockOfA.fencingToken)).toBe(false);
    expect(stock.value).toBe('as B sold it');
    expect(await a.release('paused')).toBe(false);
    expect(await lockOfB.release()).toBe(true);
  });
});

const LONG_TTL_MS = 60_000;
/** A grant to a dead process is taken back after 2 s: any time far below the ttl shows this. */
const SERVED_WITHIN_MS = 30_000;

describe('H21: the process that is next in the queue dies', () => {
  it('a naive queue hands the lock to a dead waiter, and those behind it wait for the whole ttl', async () => {
    const server = await redisServer();
    const redis = clientOf(server);
    await redis.set('lock', 'holder', 'PX', LONG_TTL_MS);
    const first = NaiveProcess.start(server, `await redis.rpush('queue', 'first'); say('waits');`);
    await first.says('waits');
    await redis.rpush('queue', 'second');

    await first.kill();
    await redis.set('lock', (await redis.lpop('queue'))!, 'PX', LONG_TTL_MS); // the holder hands over
    expect(await redis.get('lock')).toBe('first');
    expect(await redis.pttl('lock')).toBeGreaterThan(LONG_TTL_MS - SERVED_WITHIN_MS);
    expect(await redis.lrange('queue', 0, -1)).toEqual(['second']);
  });

  it.each([
    ['is stopped', () => stoppable.pause()],
    ['is killed', () => stoppable.kill()],
  ])('this library soon serves the next waiter when the first one %s [G173]', async (fate, meetIt) => {
    const options = { redis: server.url, ttlMs: LONG_TTL_MS, waitMs: LONG_TTL_MS };
    const [holder, second] = [await openLocks(options), await openLocks(options)];
    const lock = await holder.acquire(fate);
    stoppable.resume();
    stoppable.acquire(fate, { ttlMs: LONG_TTL_MS, waitMs: LONG_TTL_MS }).catch(() => {});
    await untilQueued(server, fate, 1);
    const waiting = second.acquire(fate, { waitMs: SERVED_WITHIN_MS });
    await meetIt();
    await lock.release();
    const next = await waiting;
    expect(await ownerOn(server, fate)).toBe(next.owner);
    expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
    expect(await next.release()).toBe(true);
  });
});
