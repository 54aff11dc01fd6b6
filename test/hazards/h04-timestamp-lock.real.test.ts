import type { Redis } from 'ioredis';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { clientOf, redisServer } from '../support/stage.js';
import { ownerOn } from '../support/stored.js';

const HOUR_MS = 3_600_000;
const DEFAULT_TTL_MS = 30_000;

/** The lock of the old SETNX page: its value is the time at which it ends, by the clock of whoever took it. */
class TimestampLock {
  constructor(
    private readonly redis: Redis,
    private readonly clock: () => number,
  ) {}

  /** @returns when the lock ends, undefined when it is taken */
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

describe('H4: the end of the lease is a time of the clients', () => {
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

  it('this library asks no clock but that of Redis: there is one holder, and the losers change nothing [G151]', async () => {
    const server = await redisServer();
    const [crashed, inTime] = await Promise.all([1, 2].map(() => LockProcess.start({ redis: server.url })));
    const wall = Date.now.bind(Date);
    const clock = vi.spyOn(Date, 'now').mockImplementation(() => wall() + HOUR_MS);
    onTestFinished(() => clock.mockRestore());
    const ahead = await openLocks({ redis: server.url });

    await crashed!.acquire('key');
    expect(await ahead.tryAcquire('key')).toBeNull();
    await crashed!.kill();
    await server.command('PEXPIRE', 'lock:{key}', 500); // nearly all of the ttl passes
    const waiting = { waitMs: DEFAULT_TTL_MS };
    const race = [
      inTime!.acquire('key', waiting).then(({ owner }) => ({ owner, release: () => inTime!.release('key') })),
      ahead.acquire('key', waiting),
    ];
    const winner = await Promise.race(race);
    await expect(inTime!.acquire('key', { waitMs: 0 })).rejects.toThrow('LockContendedError');
    expect(await ahead.tryAcquire('key')).toBeNull();
    expect(await ownerOn(server, 'key')).toBe(winner.owner);
    expect(await server.command('PTTL', 'lock:{key}')).toBeLessThanOrEqual(DEFAULT_TTL_MS);
    expect(await winner.release()).toBe(true); // a lock that is its own still
    const [one, other] = await Promise.all(race);
    expect(one!.owner).not.toBe(other!.owner);
    expect(await server.command('PTTL', 'lock:{key}')).toBeLessThanOrEqual(DEFAULT_TTL_MS);
  });
});
