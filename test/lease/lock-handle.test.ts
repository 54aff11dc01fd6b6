import { describe, expect, it } from 'vitest';
import { counterOn } from '../support/stored.js';
import { sceneOfFile } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, openBehindProxy, ownerOf, leftMs } = await sceneOfFile();

const lost = (reason: string) => expect.objectContaining({ code: 'LOCK_LOST', reason }) as Error;

describe('a lock', () => {
  it('is given back at the end of an `await using` block, also when that throws', async () => {
    const locks = await open();
    const block = async () => {
      await using lock = await locks.acquire('using');
      throw new Error(`held by ${lock.owner === (await ownerOf('using'))}`);
    };
    await expect(block()).rejects.toThrow('held by true');
    expect(await ownerOf('using')).toBeNull();
  });
});

describe('extend', () => {
  it('restarts the ttl, makes it longer or shorter, here and in Redis; of several calls at once, the last one counts', async () => {
    const locks = await open({ watchdog: false });
    const lock = await locks.acquire('extended', { ttlMs: 10_000 });
    const isNow = async (ttlMs: number) => {
      for (const ms of [lock.remainingMs, await leftMs('extended')]) expect(Math.abs(ms - ttlMs)).toBeLessThan(700);
    };
    await server.command('PEXPIRE', 'lock:{extended}', 5_000);
    await lock.extend();
    await isNow(10_000);
    await lock.extend(60_000);
    await isNow(60_000);
    await Promise.all([lock.extend(50_000), lock.extend(5_000), lock.extend(30_000)]);
    await isNow(30_000);
    await expect(lock.extend(19)).rejects.toMatchObject({ code: 'LOCK_OPTIONS' });
    await isNow(30_000);
    await lock.extend(1_000);
    await isNow(1_000);
    await until(() => lock.signal.aborted, { what: 'it has ended' });
    expect(lock.signal.reason).toEqual(lost('expired'));
  });

  it.each([
    ['gone', 'expired', ['DEL'], null],
    ["another owner's", 'stolen', ['SET', 'thief', 'PX', '5000'], 'thief'],
  ] as const)(
    'rejects and reports the loss when the key is %s, and does not change the key',
    async (key, reason, [command, ...rest], owner) => {
      const locks = await open();
      const lock = await locks.acquire(key);
      await server.command(command, `lock:{${key}}`, ...rest);
      for (const _ of [1, 2]) await expect(lock.extend(60_000)).rejects.toEqual(lost(reason));
      expect(lock.signal.reason).toEqual(lost(reason));
      expect(await ownerOf(key)).toBe(owner);
      expect(await leftMs(key)).toBeLessThanOrEqual(5_000);
    },
  );

  it('that is not answered rejects; if shorter, it counts as if it had run; if longer, it leaves no key behind where it ran', async () => {
    const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 100, watchdog: false });
    for (const [ttlMs, extendedTo] of [
      [60_000, 700],
      [700, 60_000],
    ] as const) {
      const lock = await locks.acquire('unanswered', { ttlMs });
      await lock.extend();
      proxy.dropReplies();
      await expect(lock.extend(extendedTo)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE', key: 'unanswered' });
      expect(lock.isHeld).toBe(true);
      expect(lock.remainingMs).toBeLessThanOrEqual(700 - 100);
      expect(Math.abs((await leftMs('unanswered')) - extendedTo)).toBeLessThan(500);
      await until(() => lock.signal.aborted, { what: 'the shorter lease has ended' });
      proxy.passReplies();
      await until(async () => (await ownerOf('unanswered')) === null, { what: 'the key is gone' });
    }
  });

  it('a grant and an extension count from when they were sent: the time that the reply took is gone from the lease, and so are drift and marginMs [G5]', async () => {
    const { proxy, locks } = await openBehindProxy({ commandTimeoutMs: 5_000, marginMs: 1_000 });
    const lock = await locks.acquire('slow');
    proxy.hold();
    const extending = lock.extend(20_000);
    const acquiring = locks.acquire('as slow', { ttlMs: 20_000 });
    await new Promise((resolve) => setTimeout(resolve, 300));
    proxy.release();
    await extending;
    for (const each of [lock, await acquiring]) {
      expect(each.remainingMs).toBeLessThanOrEqual(20_000 - 202 - 1_000 - 300 + 5);
      expect(each.remainingMs).toBeGreaterThan(10_000);
      await each.release();
    }
  });

  it('an extension mints no new fencing token [G26]', async () => {
    const locks = await open();
    const lock = await locks.acquire('token');
    await lock.extend();
    expect(await counterOn(server)).toBe(lock.fencingToken);
  });
});
