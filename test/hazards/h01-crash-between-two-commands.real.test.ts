import { describe, expect, it } from 'vitest';
import { LockProcess } from '../support/lock-process.js';
import { openLocks } from '../support/open-locks.js';
import { clientOf, NaiveProcess, redisServer } from '../support/stage.js';

describe('H1: the holder crashes between two commands', () => {
  it('a naive lock of SETNX and PEXPIRE stays for ever when its holder crashes between the two', async () => {
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

  it('this library leaves no lock without an end when the holder crashes, and a waiter gets it when the ttl is over [G148]', async () => {
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
