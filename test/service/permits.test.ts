import { setTimeout as sleep } from 'node:timers/promises';
import { beforeAll, describe, expect, it } from 'vitest';
import type { Lock, LockEvent, LockService, Permit, RedisLockModuleOptions, RedisLockSettings } from 'nest-redis-lock';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { loadScripts } from '../support/script-calls.js';
import { serverOfFile } from '../support/stage.js';
import { until } from '../support/until.js';

const server = await serverOfFile();
beforeAll(() => loadScripts(server));

const STORES: [name: string, options: () => RedisLockModuleOptions][] = [
  ['memory', () => ({ memory: true })],
  ['one Redis', () => ({ redis: server.url })],
];

const DEADLOCK = (message: string) => ({
  code: 'LOCK_SELF_DEADLOCK',
  message: expect.stringContaining(message) as string,
});
const REFUSED = (message: string) => ({ code: 'LOCK_OPTIONS', message: expect.stringContaining(message) as string });

/** Work that says how many run at once, weighted by their permits. */
class Crowd {
  now = 0;
  most = 0;

  readonly work = async ({ permits }: Pick<Permit, 'permits'>): Promise<void> => {
    this.now += permits;
    this.most = Math.max(this.most, this.now);
    await sleep(20);
    this.now -= permits;
  };
}

const waiting = async (locks: LockService, key: string, count: number) => {
  await until(async () => ((await locks.inspect(key))?.waiters ?? 0) === count, { what: `${count} calls wait` });
  await sleep(50); // their places are taken, too
};

describe.each(STORES)('permits (%s)', (_name, options) => {
  const open = (settings: RedisLockSettings = {}) => openLocks({ ...options(), ...settings });

  it('several can be taken at once, and those that are held are never more than the limit [G900]', async () => {
    const locks = await open();
    const crowd = new Crowd();
    const calls = Array.from({ length: 40 }, (_, at) =>
      locks.withPermits('weights', { limit: 5, permits: 1 + (at % 3) }, crowd.work),
    );
    await Promise.all(calls);
    expect(crowd.most).toBeGreaterThan(3);
    expect(crowd.most).toBeLessThanOrEqual(5);
    expect(await locks.inspect('weights')).toBeNull();
  });

  it('exclude a lock of the same key and are excluded by it, are refused in time, and given back with their handle', async () => {
    const locks = await open();
    const CONTENDED = { code: 'LOCK_CONTENDED' };
    const lock = await locks.acquire('both');
    expect(await locks.tryAcquirePermits('both', { limit: 2 })).toBeNull();
    await lock.release();
    const [first, second] = [
      await locks.acquirePermits('both', { limit: 2 }),
      await locks.acquirePermits('both', { limit: 2 }),
    ];
    expect([first.permits, 'fencingToken' in JSON.parse(JSON.stringify(first))]).toEqual([1, false]);
    expect(() => (first as unknown as Lock).fencingToken).toThrow(
      /^Permits of ".+" have no fencing token: several calls/,
    );
    expect(await locks.inspect('both')).toMatchObject({ permits: { held: 2, limit: 2 } });
    expect(await locks.tryAcquire('both')).toBeNull();
    expect(await locks.tryAcquirePermits('both', { limit: 2 })).toBeNull();
    await expect(locks.acquirePermits('both', { limit: 2, waitMs: 50 })).rejects.toMatchObject(CONTENDED);
    await first.release();
    const third = (await locks.tryAcquirePermits('both', { limit: 2 }))!; // though one before was refused
    await locks.forceRelease('both');
    await until(() => third.signal.aborted && second.signal.aborted, { what: 'the loss is known' });
    expect(third.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'forced' });
    expect(await third.release()).toBe(false);
  });

  it.each([0, 50])(
    'a call that is refused after %i ms says how many hold them beside the one that it names',
    async (waitMs) => {
      const locks = await open();
      const hold = (ttlMs: number) => locks.acquirePermits('named', { limit: 4, ttlMs, watchdog: false });
      const held = [await hold(1_000), await hold(20_000), await hold(30_000), await hold(40_000)];
      const refusals = async () => [
        await locks.acquirePermits('named', { limit: 4, permits: 2, waitMs }).catch((error: unknown) => error),
        await locks.acquire('named', { waitMs }).catch((error: unknown) => error),
      ];
      for (const error of await refusals()) expect(error).toMatchObject({ code: 'LOCK_CONTENDED', others: 3 });
      await sleep(1_500); // the first of them has ended, and its words are still in the value
      const message = expect.stringContaining(' and 2 others (') as string;
      for (const error of await refusals()) expect(error).toMatchObject({ others: 2, message });
      await Promise.all(held.slice(1).map((permit) => permit.release()));
    },
  );

  it('a call that waits for several is not overtaken by one that needs fewer [G901]', async () => {
    const locks = await open();
    const first = await locks.acquirePermits('large', { limit: 3 });
    const order: string[] = [];
    const large = locks.withPermits('large', { limit: 3, permits: 3 }, () => void order.push('large'));
    await waiting(locks, 'large', 1);
    const small = locks.withPermits('large', { limit: 3 }, () => void order.push('small'));
    await expect(locks.tryAcquirePermits('large', { limit: 3 })).resolves.toBeNull();
    await waiting(locks, 'large', 2);
    expect(order).toEqual([]);
    await first.release();
    await Promise.all([large, small]);
    expect(order).toEqual(['large', 'small']);
  });

  it('without a watchdog end after their ttl, one holder after the other [G903]', async () => {
    const locks = await open();
    const short = await locks.acquirePermits('ends', { limit: 2, ttlMs: 200, watchdog: false });
    const long = await locks.acquirePermits('ends', { limit: 2, ttlMs: 60_000 });
    await expect(locks.tryAcquirePermits('ends', { limit: 2 })).resolves.toBeNull();
    const next = await locks.acquirePermits('ends', { limit: 2 });
    expect(short.isHeld).toBe(false);
    expect(long.isHeld).toBe(true);
    await Promise.all([long.release(), next.release()]);
    expect(await locks.inspect('ends')).toBeNull();
  });

  it('the smaller one of two limits counts for all while such a call holds permits, and a warning says so once', async () => {
    const locks = await open();
    const warnings: string[] = [];
    locks.events$.subscribe((event: LockEvent) => {
      if (event.type === 'warning') warnings.push(event.message);
    });
    const held = await locks.acquirePermits('limits', { limit: 2 });
    const second = await locks.acquirePermits('limits', { limit: 5 });
    await expect(locks.tryAcquirePermits('limits', { limit: 5 })).resolves.toBeNull();
    await expect(locks.tryAcquirePermits('limits', { limit: 5 })).resolves.toBeNull();
    await held.release();
    const third = await locks.acquirePermits('limits', { limit: 5 });
    await Promise.all([second.release(), third.release()]);
    await until(() => warnings.length > 0, { what: 'a warning' });
    expect(warnings).toEqual([
      'Calls for permits of "limits" name different limits: 5 here, and 2 elsewhere, which counts as long as such a call holds permits. ' +
        'Name the same limit in all of them.',
    ]);
  });

  it('a call that holds permits takes as many or fewer of the key again, and is refused more of them, or the lock [G904]', async () => {
    const locks = await open();
    await locks.withPermits('nested', { limit: 2, permits: 2 }, async () => {
      await locks.withPermits('nested', { limit: 2 }, ({ permits }) => expect(permits).toBe(2));
      await expect(locks.withLock('nested', () => {})).rejects.toMatchObject(DEADLOCK('in the mode permits'));
    });
    await locks.withPermits('nested', { limit: 2 }, async () => {
      const more = locks.withPermits('nested', { limit: 2, permits: 2 }, () => {});
      await expect(more).rejects.toMatchObject(DEADLOCK('with 1 of its permits, and it asks for 2 more'));
      const strict = locks.withPermits('nested', { limit: 2, reentrant: false }, () => {});
      await expect(strict).rejects.toMatchObject(DEADLOCK('already held'));
    });
    await locks.withLock('nested', async () => {
      const under = locks.withPermits('nested', { limit: 2 }, () => {});
      await expect(under).rejects.toMatchObject(DEADLOCK('in the mode exclusive'));
    });
    expect(locks.size).toBe(0);
  });

  it('end when they were held for longer than maxHoldMs, and others get them when the work has ended [G905]', async () => {
    const locks = await open();
    const gate = new Gate();
    const hangs = locks.withPermits('hangs', { limit: 1, maxHoldMs: 50 }, async ({ signal }) => {
      await new Promise((resolve) => signal.addEventListener('abort', resolve));
      await gate.opened;
    });
    const next = locks.withPermits('hangs', { limit: 1 }, () => 'next');
    await sleep(100);
    gate.open();
    await expect(hangs).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'overstayed' });
    await expect(next).resolves.toBe('next');
  });

  it('cannot be detached', async () => {
    const locks = await open();
    const permit = await locks.acquirePermits('parcel', { limit: 1 });
    const detach = (permit as unknown as { detach(options: object): Promise<unknown> }).detach({ ttlMs: 60_000 });
    await expect(detach).rejects.toMatchObject(REFUSED('Detach exclusive locks'));
    await permit.release();
  });
});

describe('permits of several processes', () => {
  it('who waits longest is served first, whatever the process [G902]', async () => {
    const [a, b] = await Promise.all([1, 2].map(() => openLocks({ redis: server.url, fair: true, fairSlackMs: 0 })));
    const holder = await openLocks({ redis: server.url });
    const held = await holder.acquirePermits('arrival', { limit: 1 });
    const order: string[] = [];
    const calls: Promise<void>[] = [];
    for (const [at, locks] of [a!, b!, a!, b!].entries()) {
      calls.push(locks.withPermits('arrival', { limit: 1 }, () => void order.push(`${at}`)));
      await waiting(locks, 'arrival', Math.floor(at / 2) + 1);
      await sleep(5);
    }
    await held.release();
    await Promise.all(calls);
    expect(order).toEqual(['0', '1', '2', '3']);
  });
});
