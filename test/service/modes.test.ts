import { setTimeout as sleep } from 'node:timers/promises';
import { describe, expect, it } from 'vitest';
import type { Lock, LockService, Permit, RedisLockModuleOptions, RedisLockSettings } from 'nest-redis-lock';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { proxyTo } from '../support/stage.js';
import { sceneOfFile, warningsOf } from '../support/scene.js';
import { until } from '../support/until.js';

const { server, open, untilQueued } = await sceneOfFile();

const STORES: [name: string, options: () => RedisLockModuleOptions][] = [
  ['memory', () => ({ memory: true })],
  ['one Redis', () => ({ redis: server.url })],
];

const DEADLOCK = (message: string) => ({
  code: 'LOCK_SELF_DEADLOCK',
  message: expect.stringContaining(message) as string,
});
const REFUSED = (message: string) => ({ code: 'LOCK_OPTIONS', message: expect.stringContaining(message) as string });

/** Work that reports how many calls run at once, weighted by their permits. */
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
  await sleep(50); // their places are also taken
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

  it('exclude a lock of the same key and are excluded by it, are refused in time, and released with their handle', async () => {
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

  it('the smaller of two limits applies to all while a call with that limit holds permits, and a warning says so once', async () => {
    const locks = await open();
    const warnings = warningsOf(locks);
    const held = await locks.acquirePermits('limits', { limit: 2 });
    const second = await locks.acquirePermits('limits', { limit: 5 });
    await expect(locks.tryAcquirePermits('limits', { limit: 5 })).resolves.toBeNull();
    await expect(locks.tryAcquirePermits('limits', { limit: 5 })).resolves.toBeNull();
    await held.release();
    const third = await locks.acquirePermits('limits', { limit: 5 });
    await Promise.all([second.release(), third.release()]);
    await until(() => warnings.length > 0, { what: 'a warning' });
    expect(warnings).toEqual([
      'Calls for permits of "limits" name different limits: 5 here, and 2 elsewhere. The smaller limit applies while a call with that limit ' +
        'holds permits. Use the same limit in all calls.',
    ]);
  });

  it('a call that holds permits can take as many or fewer of the same key again, but not more of them, or the lock [G904]', async () => {
    const locks = await open();
    await locks.withPermits('nested', { limit: 2, permits: 2 }, async () => {
      await locks.withPermits('nested', { limit: 2 }, ({ permits }) => expect(permits).toBe(2));
      await expect(locks.withLock('nested', () => {})).rejects.toMatchObject(DEADLOCK('in mode permits'));
    });
    await locks.withPermits('nested', { limit: 2 }, async () => {
      const more = locks.withPermits('nested', { limit: 2, permits: 2 }, () => {});
      await expect(more).rejects.toMatchObject(DEADLOCK('with 1 of its permits, and the call asks for 2 more'));
      const strict = locks.withPermits('nested', { limit: 2, reentrant: false }, () => {});
      await expect(strict).rejects.toMatchObject(DEADLOCK('already held'));
    });
    await locks.withLock('nested', async () => {
      const under = locks.withPermits('nested', { limit: 2 }, () => {});
      await expect(under).rejects.toMatchObject(DEADLOCK('in mode exclusive'));
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
    await expect(detach).rejects.toMatchObject(REFUSED('Only exclusive locks can be detached'));
    await permit.release();
  });
});

describe('permits of several processes', () => {
  it('a refusal names the holder elsewhere also after a call of this process has given permits back', async () => {
    const [locks, others] = [await open(), await open()];
    const elsewhere = await others.acquirePermits('elsewhere', { limit: 3 });
    const here = await locks.acquirePermits('elsewhere', { limit: 3 });
    const all = locks.acquirePermits('elsewhere', { limit: 3, permits: 3 });
    await waiting(locks, 'elsewhere', 1);
    await here.release();
    const refusal = await locks.acquirePermits('elsewhere', { limit: 3, permits: 3, waitMs: 0 }).catch(String);
    expect(refusal).toContain(`held by pid ${process.pid}`);
    await elsewhere.release();
    await (await all).release();
  });

  it('a warning about different limits names the limit of the call whose attempt found it, although that call has given up', async () => {
    const proxy = await proxyTo(server);
    const [holder, locks] = [await open(), await openLocks({ redis: proxy.url })];
    const warnings = warningsOf(locks);
    await locks.withLock('warm', () => {});
    const held = await holder.acquirePermits('gave up', { limit: 3, permits: 3 });
    const giveUp = new AbortController();
    proxy.hold();
    const first = locks.acquirePermits('gave up', { limit: 5, signal: giveUp.signal });
    const refused = expect(first).rejects.toThrow('enough');
    const second = locks.acquirePermits('gave up', { limit: 3 });
    await sleep(100);
    giveUp.abort(new Error('enough'));
    await refused;
    proxy.release();
    await untilQueued('gave up');
    await held.release();
    await (await second).release();
    expect(warnings.map((warning) => warning.slice(0, 77))).toEqual([
      'Calls for permits of "gave up" name different limits: 5 here, and 3 elsewhere',
    ]);
  });

  it('the call that waits longest is served first, in any process [G902]', async () => {
    const [a, b] = await Promise.all([1, 2].map(() => open({ fair: true })));
    const holder = await open();
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

const SHARED = { mode: 'shared' } as const;
/** Work of readers and writers that records which of them run together. */
class Room {
  readers = 0;
  writers = 0;
  mostReaders = 0;
  readonly violations: string[] = [];
  readonly tokens: { mode: string; token: number }[] = [];

  readonly work = async ({ mode, fencingToken }: Lock): Promise<void> => {
    const isReader = mode === 'shared';
    if (isReader) this.readers++;
    else this.writers++;
    this.mostReaders = Math.max(this.mostReaders, this.readers);
    if (this.writers > 1 || (this.writers > 0 && this.readers > 0))
      this.violations.push(`${this.writers} writers beside ${this.readers} readers`);
    this.tokens.push({ mode, token: fencingToken });
    await sleep(5);
    if (isReader) this.readers--;
    else this.writers--;
  };

  /**
   * Whether tokens never went back, no writer has the token of another holder, and no reader has the token of a writer.
   */
  get areTokensInOrder(): boolean {
    return this.tokens.every(({ mode, token }, at) => {
      const before = this.tokens[at - 1];
      if (!before) return true;
      return mode === 'shared' && before.mode === 'shared' ? token >= before.token : token > before.token;
    });
  }
}

describe.each(STORES)('a lock that is shared (%s)', (_name, options) => {
  const open = (settings: RedisLockSettings = {}) => openLocks({ ...options(), ...settings });

  it('is held by many at once, all with one token, and by a writer alone, whose token is larger than all before [G906]', async () => {
    const locks = await open();
    const room = new Room();
    const calls = Array.from({ length: 60 }, (_, at) => locks.withLock('room', at % 6 === 5 ? {} : SHARED, room.work));
    await Promise.all(calls);
    expect(room.violations).toEqual([]);
    expect(room.mostReaders).toBeGreaterThanOrEqual(5);
    expect(room.areTokensInOrder).toBe(true);
    expect(await locks.inspect('room')).toBeNull();
    expect(locks.size).toBe(0);
  });

  it('lets no reader pass a writer that waits, and no writer a reader [G907]', async () => {
    const locks = await open({ cohortMs: 0 });
    const order: string[] = [];
    const first = await locks.acquire('order', SHARED);
    const writer = locks.withLock('order', () => void order.push('writer'));
    await waiting(locks, 'order', 1);
    const reader = locks.withLock('order', SHARED, () => void order.push('reader'));
    await expect(locks.tryAcquire('order', SHARED)).resolves.toBeNull();
    await waiting(locks, 'order', 2);
    expect(order).toEqual([]);
    await first.release();
    await Promise.all([writer, reader]);
    expect(order).toEqual(['writer', 'reader']);
  });

  it('is taken again under itself, or shared under an exclusive hold of it; an exclusive call under a shared one fails at once [G910]', async () => {
    const locks = await open();
    await locks.withLock('nested', SHARED, async (outer) => {
      await locks.withLock('nested', SHARED, (inner) => expect(inner.fencingToken).toBe(outer.fencingToken));
      const upgrade = locks.withLock('nested', () => {});
      await expect(upgrade).rejects.toMatchObject(DEADLOCK('in mode shared, and the call asks for mode exclusive'));
    });
    await locks.withLock('nested', async (outer) => {
      await locks.withLock('nested', SHARED, (inner) => expect(inner.fencingToken).toBe(outer.fencingToken));
    });
    expect(locks.size).toBe(0);
  });

  it('is not shortened by an extension of one of its readers, and lasts no longer than any of its holders requests [G1003]', async () => {
    const locks = await open({ ttlMs: 10_000 });
    const [one, other] = await Promise.all([locks.acquire('readers', SHARED), locks.acquire('readers', SHARED)]);
    expect(one.owner).toBe(other.owner);
    await one.extend(100);
    expect(other.remainingMs).toBeGreaterThan(5_000);
    await one.extend(600_000);
    expect(other.remainingMs).toBeGreaterThan(500_000);
    await other.extend(20_000);
    expect(one.remainingMs).toBeGreaterThan(500_000);
    await one.release();
    await until(() => other.remainingMs <= 20_000, { what: 'it lasts as long as the reader asks for that is left' });
    expect((await locks.inspect('readers'))!.remainingMs).toBeLessThanOrEqual(20_000);
    await other.extend();
    expect(other.remainingMs).toBeGreaterThan(15_000);
    await other.release();
  });

  it.each<[string, (locks: LockService, key: string, options: { ttlMs: number; watchdog: false }) => Promise<Lock>]>([
    ['was taken so', (locks, key, options) => locks.acquire(key, { ...SHARED, ...options })],
    ['was downgraded', async (locks, key, options) => (await locks.acquire(key, options)).downgrade()],
  ])(
    'ends with its ttl for a reader without a watchdog, but not for one with a watchdog that comes right after it, where it %s',
    async (how, take) => {
      const locks = await open();
      const key = `unwatched ${how}`;
      const unwatched = await take(locks, key, { ttlMs: 300, watchdog: false });
      await locks.withLock(key, { ...SHARED, ttlMs: 300 }, async ({ signal }) => {
        await until(() => !unwatched.isHeld, { what: 'the time of the first reader is over' });
        await sleep(1_000);
        expect(signal.aborted).toBe(false);
      });
      expect(locks.size).toBe(0);
    },
  );

  it('is forgotten when its first call is refused at once because too many others wait for the key', async () => {
    const locks = await open({ maxWaiters: 1 });
    const calls = [locks.acquire('crowded'), locks.acquire('crowded')];
    await expect(locks.acquire('crowded', SHARED)).rejects.toMatchObject({ code: 'LOCK_CONTENDED' });
    for (const call of calls) await (await call).release();
    expect(locks.size).toBe(0);
  });

  it('ends for one reader alone when that has held it for longer than its maxHoldMs [G908]', async () => {
    const locks = await open();
    const stays = await locks.acquire('overstayed', SHARED);
    const long = locks.withLock(
      'overstayed',
      { ...SHARED, maxHoldMs: 50 },
      ({ signal }) => new Promise((resolve) => signal.addEventListener('abort', resolve)),
    );
    await expect(long).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'overstayed' });
    expect(stays.isHeld).toBe(true);
    await stays.release();
  });

  it('is not limited by a call under it, which others that share it would have to obey', async () => {
    const locks = await open();
    const stays = await locks.acquire('nested-limit', SHARED);
    await locks.withLock('nested-limit', SHARED, async ({ signal }) => {
      const limited = locks.withLock('nested-limit', { ...SHARED, maxHoldMs: 50 }, () => 'ran');
      await expect(limited).rejects.toMatchObject({ code: 'LOCK_OPTIONS' });
      await expect(limited).rejects.toThrow(
        '"nested-limit": the lock would end for the outer call, too. Set maxHoldMs in the outer call.',
      );
      await sleep(100);
      expect(signal.aborted).toBe(false);
    });
    // A call with a limit has its own lease.
    await locks.withLock('nested-limit', { ...SHARED, maxHoldMs: 60_000 }, () =>
      expect(locks.withLock('nested-limit', { ...SHARED, maxHoldMs: 50 }, () => 'ran')).resolves.toBe('ran'),
    );
    expect(stays.isHeld).toBe(true);
    await stays.release();
  });

  it('is downgraded: readers that wait come in, and no writer in between [G909]', async () => {
    const locks = await open();
    const order: string[] = [];
    const gate = new Gate();
    const work = locks.withLock('downgraded', async (lock) => {
      await waiting(locks, 'downgraded', 2);
      const reading = await lock.downgrade();
      expect(lock.isHeld).toBe(false);
      expect(lock.signal.aborted).toBe(false);
      expect(reading.mode).toBe('shared');
      expect(reading.fencingToken).toBeGreaterThan(lock.fencingToken);
      expect(locks.current('downgraded')).toBe(reading);
      await locks.withLock('downgraded', SHARED, (again) => expect(again.fencingToken).toBe(reading.fencingToken));
      await expect(locks.tryAcquire('downgraded')).rejects.toMatchObject({ code: 'LOCK_SELF_DEADLOCK' });
      order.push('downgraded');
      await gate.opened;
      order.push('done');
    });
    await until(async () => (await locks.inspect('downgraded')) !== null, { what: 'it is held' });
    const read = locks.withLock('downgraded', SHARED, async () => {
      order.push('reader');
      await gate.opened;
    });
    const write = locks.withLock('downgraded', () => void order.push('writer'));
    await until(() => order.length === 2, { what: 'both share it' });
    gate.open();
    await Promise.all([work, read, write]);
    expect(order.slice(0, 2).sort()).toEqual(['downgraded', 'reader']);
    expect(order.at(-1)).toBe('writer');
    expect(await locks.inspect('downgraded')).toBeNull();
    expect(locks.size).toBe(0);
  });

  it('is no longer held by its call once it was released after a downgrade, also while another call shares it', async () => {
    const locks = await open();
    const work = locks.withLock('released reader', async (lock) => {
      await waiting(locks, 'released reader', 1);
      const reading = await lock.downgrade();
      const other = await read;
      await reading.release();
      expect(() => locks.current('released reader')).toThrow('current() was called outside of');
      expect(await locks.tryAcquire('released reader')).toBeNull();
      await other.release();
    });
    await until(async () => (await locks.inspect('released reader')) !== null, { what: 'it is held' });
    const read = locks.acquire('released reader', SHARED);
    await work;
  });

  it('is downgraded only by the one call that holds it alone', async () => {
    const locks = await open();
    const lock = await locks.acquire('alone', { holdMs: 1 });
    await expect(lock.downgrade()).rejects.toMatchObject(REFUSED('holdMs'));
    await lock.release();
    await locks.withLock(['one', 'two'], async (both) => {
      await expect(both.get('one').downgrade()).rejects.toMatchObject(REFUSED('acquired together with others'));
      expect(both.isHeld).toBe(true);
    });
    await locks.withLock('twice', async (outer) => {
      await locks.withLock('twice', async () => {
        await expect(outer.downgrade()).rejects.toMatchObject(REFUSED('2 calls of this process hold it'));
      });
      const reading = await outer.downgrade();
      await expect(reading.downgrade()).rejects.toMatchObject(REFUSED('in mode shared'));
      await expect(outer.downgrade()).rejects.toMatchObject({ code: 'LOCK_LOST' });
    });
    const { signal } = await locks.acquire('shared', SHARED);
    expect(signal.aborted).toBe(false);
  });
});

it('a lock that several processes share lets a writer in behind the reader that came just before it, also in a process that has never waited [G1018]', async () => {
  for (let round = 0; round < 8; round++) {
    const [holding, locks] = [await open(), await open()];
    const key = `never waited ${round}`;
    const holder = await holding.acquire(key);
    const order: string[] = [];
    const reader = locks.withLock(key, SHARED, () => void order.push('reader'));
    const writer = locks.withLock(key, () => void order.push('writer'));
    await untilQueued(key, 2);
    await holder.release();
    await Promise.all([reader, writer]);
    expect(order).toEqual(['reader', 'writer']);
  }
});
