import { setImmediate as nextTurn, setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import type {
  Lock,
  LockEvent,
  LockService,
  Permit,
  PermitOptions,
  RedisLockModuleOptions,
  RedisLockSettings,
} from 'nest-redis-lock';
import { Gate } from '../support/gate.js';
import { openLocks } from '../support/open-locks.js';
import { RedisServer } from '../support/redis-server.js';
import { loadScripts } from '../support/script-calls.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  server = await RedisServer.start();
  await loadScripts(server);
});
afterAll(() => server.stop());

const STORES: [name: string, options: () => RedisLockModuleOptions][] = [
  ['memory', () => ({ memory: true })],
  ['one Redis', () => ({ redis: server.url })],
];

const CONTENDED = expect.objectContaining({ code: 'LOCK_CONTENDED' }) as unknown;
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

  it('at most so many are held at once as their limit says, and all of them if enough calls want them', async () => {
    const locks = await open();
    const crowd = new Crowd();
    const calls = Array.from({ length: 40 }, () => locks.withPermits('crowd', { limit: 3 }, crowd.work));
    await Promise.all(calls);
    expect(crowd.most).toBe(3);
    expect(await locks.inspect('crowd')).toBeNull();
    expect(locks.size).toBe(0);
  });

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

  it('a call that tries once gets what was given back, though one before was refused and others of its process hold the rest', async () => {
    const locks = await open();
    const [first, second] = [
      await locks.acquirePermits('tried', { limit: 2 }),
      await locks.acquirePermits('tried', { limit: 2 }),
    ];
    expect(await locks.tryAcquirePermits('tried', { limit: 2 })).toBeNull();
    await first.release();
    const third = await locks.tryAcquirePermits('tried', { limit: 2 });
    expect(third?.isHeld).toBe(true);
    await Promise.all([second.release(), third!.release()]);
    expect(locks.size).toBe(0);
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

  it('exclude a lock of the same key, and are excluded by it', async () => {
    const locks = await open();
    const lock = await locks.acquire('both');
    await expect(locks.tryAcquirePermits('both', { limit: 3 })).resolves.toBeNull();
    await lock.release();
    const permit = await locks.acquirePermits('both', { limit: 3 });
    await expect(locks.tryAcquire('both')).resolves.toBeNull();
    const waits = locks.acquire('both');
    await waiting(locks, 'both', 1);
    await expect(locks.tryAcquirePermits('both', { limit: 3 })).resolves.toBeNull();
    await permit.release();
    await (await waits).release();
  });

  it('are kept alive by the watchdog, and lost when the store has given them up', async () => {
    const locks = await open();
    const permit = await locks.acquirePermits('alive', { limit: 2, ttlMs: 300 });
    await sleep(1_000);
    expect(permit.isHeld).toBe(true);
    expect(permit.permits).toBe(1);
    expect('fencingToken' in JSON.parse(JSON.stringify(permit))).toBe(false);
    expect(() => (permit as unknown as Lock).fencingToken).toThrow(
      /^Permits of ".+" have no fencing token: several calls/,
    );
    await locks.forceRelease('alive');
    await until(() => permit.signal.aborted, { what: 'the loss is known' });
    expect(permit.signal.reason).toMatchObject({ code: 'LOCK_LOST', reason: 'forced' });
    expect(await permit.release()).toBe(false);
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

  it.each([0, 50])(
    'a call that is refused after %i ms says how many hold the permits, or the lock, beside the one that it names',
    async (waitMs) => {
      const locks = await open();
      const hold = (ttlMs: number) => locks.acquirePermits('named', { limit: 4, ttlMs, watchdog: false });
      const held = [await hold(1_000), await hold(20_000), await hold(30_000), await hold(40_000)];
      const refusals = (permits: number) =>
        Promise.all([
          locks.acquirePermits('named', { limit: 4, permits, waitMs }).catch((error: unknown) => error),
          locks.acquire('named', { waitMs }).catch((error: unknown) => error),
        ]);
      const andTwo = expect.stringContaining(' and 2 others (') as string;
      for (const error of await refusals(1)) expect(error).toMatchObject({ code: 'LOCK_CONTENDED', others: 3 });
      await sleep(1_500); // the first of them has ended, and its words are still in the value
      for (const error of await refusals(2)) expect(error).toMatchObject({ others: 2, message: andTwo });
      await Promise.all(held.slice(1, 3).map((permit) => permit.release()));
      for (const error of await refusals(4)) expect(error).toMatchObject({ code: 'LOCK_CONTENDED', others: undefined });
      await held[3]!.release();
    },
  );

  it('a refused call says that others hold the permits, within its time', async () => {
    const locks = await open();
    const held = await locks.acquirePermits('refused', { limit: 1 });
    await expect(locks.acquirePermits('refused', { limit: 1, waitMs: 50 })).rejects.toEqual(CONTENDED);
    const controller = new AbortController();
    const aborted = locks.acquirePermits('refused', { limit: 1, signal: controller.signal });
    controller.abort(new Error('enough'));
    await expect(aborted).rejects.toThrow('enough');
    await held.release();
    await (await locks.acquirePermits('refused', { limit: 1 })).release();
    expect(locks.size).toBe(0);
  });

  it('a call that waits, or tries, behind one to which a permit was passed on is refused as contended', async () => {
    const locks = await open();
    const first = await locks.acquirePermits('passed', { limit: 1 });
    const second = locks.acquirePermits('passed', { limit: 1, waitMs: 60_000 });
    const third = locks.acquirePermits('passed', { limit: 1, waitMs: 300 });
    await waiting(locks, 'passed', 2);
    await first.release();
    const passed = await second;
    const triedAt = performance.now();
    expect(await locks.tryAcquirePermits('passed', { limit: 1 })).toBeNull();
    expect(performance.now() - triedAt).toBeLessThan(50); // and not by the next check
    await expect(third).rejects.toEqual(CONTENDED);
    await passed.release();
    expect(locks.size).toBe(0);
  });

  it('the limit of calls that wait counts for permits, too', async () => {
    const locks = await open({ maxWaiters: 1 });
    const held = await locks.acquirePermits('waiters', { limit: 1 });
    const waits = locks.acquirePermits('waiters', { limit: 1 });
    await waiting(locks, 'waiters', 1);
    await expect(locks.acquirePermits('waiters', { limit: 1 })).rejects.toEqual(CONTENDED);
    await held.release();
    await (await waits).release();
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

  it('a closing application refuses calls that wait for them, and waits for those that hold them', async () => {
    const locks = await open({ shutdownTimeoutMs: 60_000 });
    const gate = new Gate();
    const work = locks.withPermits('closing', { limit: 1 }, async ({ closing }) => {
      await gate.opened;
      return closing.aborted;
    });
    const waits = locks.acquirePermits('closing', { limit: 1 });
    const refused = expect(waits).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await waiting(locks, 'closing', 1);
    const closed = locks.onApplicationShutdown();
    await refused;
    gate.open();
    await expect(work).resolves.toBe(true);
    await closed;
  });
});

describe('options of permits', () => {
  it.each<[options: unknown, message: string]>([
    [undefined, 'options must be an object with a limit'],
    [{}, 'limit must be a whole number from 1 to 1000: got undefined'],
    [{ limit: 0 }, 'limit must be'],
    [{ limit: 1_001 }, 'limit must be'],
    [{ limit: 2, permits: 0 }, 'permits must be'],
    [{ limit: 2, permits: 3 }, 'permits must be at most limit: got permits 3 with limit 2'],
    [{ limit: 2, holdMs: 5 }, 'Permits take no holdMs'],
    [{ limit: 2, lease: 5 }, 'There is no option "lease"'],
  ])('%j are refused before the store is asked', async (options, message) => {
    const locks = await openLocks({ memory: true });
    await expect(locks.acquirePermits('key', options as PermitOptions)).rejects.toMatchObject(REFUSED(message));
    expect(await locks.inspect('key')).toBeNull();
  });
});

describe('permits of several processes', () => {
  it('are at most so many as their limit says, in whichever process they are held, and all wait in one queue', async () => {
    const services = await Promise.all([1, 2, 3, 4].map(() => openLocks({ redis: server.url })));
    const crowd = new Crowd();
    const calls = services.flatMap((locks) =>
      Array.from({ length: 25 }, () => locks.withPermits('many', { limit: 3, waitMs: 60_000 }, crowd.work)),
    );
    await Promise.all(calls);
    expect(crowd.most).toBe(3);
    for (const locks of services) expect(locks.size).toBe(0);
    await until(async () => ((await server.command('KEYS', '*many*')) as string[]).length === 0, {
      what: 'nothing is left',
    });
  });

  it('a call that tries once gets a permit that is free, whenever one that waited before has given up', async () => {
    for (let ticks = 0; ticks < 12; ticks++) {
      const [locks, others] = [await openLocks({ redis: server.url }), await openLocks({ redis: server.url })];
      const key = `gave-up-${ticks}`;
      const own = await locks.acquirePermits(key, { limit: 2 });
      const theirs = await others.acquirePermits(key, { limit: 2 });
      const controller = new AbortController();
      const waits = locks
        .acquirePermits(key, { limit: 2, waitMs: 60_000, signal: controller.signal })
        .catch(() => undefined);
      await waiting(locks, key, 1);
      await theirs.release();
      for (let tick = 0; tick < ticks; tick++) await nextTurn();
      controller.abort();
      await (await waits)?.release();
      await sleep(50);
      const tried = await locks.tryAcquirePermits(key, { limit: 2 });
      expect(tried?.isHeld, `after ${ticks} turns of the event loop`).toBe(true);
      await Promise.all([own.release(), tried!.release()]);
    }
  });

  it('those of a process that has died are free when their ttl is over, and those of others stay', async () => {
    const dying = await openLocks({ redis: server.url });
    const living = await openLocks({ redis: server.url });
    await dying.acquirePermits('dies', { limit: 2, ttlMs: 1_000, watchdog: false });
    const stays = await living.acquirePermits('dies', { limit: 2 });
    const next = await living.acquirePermits('dies', { limit: 2 });
    expect(stays.isHeld).toBe(true);
    await Promise.all([stays.release(), next.release()]);
  });

  it('whose time is over does not count among those who keep a lock from another process', async () => {
    const [holders, asker] = [await openLocks({ redis: server.url }), await openLocks({ redis: server.url })];
    for (const ttlMs of [1_000, 20_000, 30_000]) {
      await holders.acquirePermits('over', { limit: 3, ttlMs, watchdog: false });
    }
    await sleep(1_500);
    const refused = asker.acquire('over', { waitMs: 0 });
    await expect(refused).rejects.toMatchObject({ code: 'LOCK_CONTENDED', others: 1 });
  });

  it('a call does not begin with fewer permits that were handed over for one that has given up', async () => {
    const holder = await openLocks({ redis: server.url });
    const locks = await openLocks({ redis: server.url });
    const held = await holder.acquirePermits('fewer', { limit: 5, permits: 5 });
    const gaveUp = new AbortController();
    const one = locks.acquirePermits('fewer', { limit: 5, signal: gaveUp.signal });
    await waiting(locks, 'fewer', 1);
    const three = locks.acquirePermits('fewer', { limit: 5, permits: 3 });
    await waiting(locks, 'fewer', 2);
    gaveUp.abort();
    await expect(one).rejects.toThrow();
    await held.release();
    const permit = await three;
    const { permits } = (await holder.inspect('fewer'))!;
    expect(permits).toEqual({ held: 3, limit: 5 });
    await permit.release();
  });

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
