import { Injectable } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import {
  LockContendedError,
  InjectLockService,
  Limited,
  Locked,
  LockOptionsError,
  LockService,
  type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { LockedCron, type LockedCronOptions } from 'nest-redis-lock/schedule';
import { LockBench } from 'nest-redis-lock/testing';
import { describe, expect, it } from 'vitest';
import { openLocks } from '../support/open-locks.js';
import { makeApp, type LockOptions } from '../support/nest-app.js';

const policies = {
  slow: { ttlMs: 120_000, waitMs: 0 },
  long: { maxHoldMs: 5_000 },
  kept: { holdMs: 600_000 },
  partner: { limit: 2, waitMs: 0 },
};

const open = () => openLocks({ memory: true, ttlMs: 1_000, waitMs: 60_000, policies });

/** The entry of a bench about a call for a lock. */
async function askedFor(run: (locks: LockService) => Promise<unknown>): Promise<unknown> {
  const bench = new LockBench({ ttlMs: 1_000, waitMs: 60_000, policies });
  await run(bench.locks);
  await bench.locks.onApplicationShutdown();
  return bench.journal[0];
}

describe('a call that names a policy', () => {
  const CALLS: [name: string, run: (locks: LockService, options?: object) => Promise<unknown>][] = [
    ['acquire', async (locks, options) => (await locks.acquire('a', { policy: 'slow', ...options })).release()],
    ['acquireAll', async (locks, options) => (await locks.acquireAll(['a'], { policy: 'slow', ...options })).release()],
    ['withLock', (locks, options) => locks.withLock('a', { policy: 'slow', ...options }, () => {})],
    [
      'acquirePermits',
      async (locks, options) => (await locks.acquirePermits('a', { policy: 'slow', limit: 5, ...options })).release(),
    ],
    ['withPermits', (locks, options) => locks.withPermits('a', { policy: 'slow', limit: 5, ...options }, () => {})],
  ];

  it.each(CALLS)(
    'has the options of the policy, otherwise of the registration, and its own options before both: %s [G863]',
    async (_, run) => {
      expect(await askedFor(run)).toMatchObject({ ttlMs: 120_000, waitMs: 0 });
      expect(await askedFor((locks) => run(locks, { policy: 'long' }))).toMatchObject({
        ttlMs: 1_000,
        waitMs: 60_000,
        maxHoldMs: 5_000,
      });
      expect(await askedFor((locks) => run(locks, { waitMs: 5 }))).toMatchObject({ ttlMs: 120_000, waitMs: 5 });
      expect(await askedFor((locks) => run(locks, { policy: undefined }))).toMatchObject({
        ttlMs: 1_000,
        waitMs: 60_000,
      });
    },
  );

  it('for permits has the limit of the policy, or its own [G869]', async () => {
    const locks = await open();
    await using _one = await locks.acquirePermits('a', { policy: 'partner' });
    await using _two = (await locks.tryAcquirePermits('a', { policy: 'partner' }))!;
    expect(await locks.tryAcquirePermits('a', { policy: 'partner' })).toBeNull();
    await expect(locks.withPermits('a', { policy: 'partner' }, () => {})).rejects.toMatchObject({
      code: 'LOCK_CONTENDED',
    });
    await expect(locks.acquirePermits('b', { policy: 'partner', permits: 3 })).rejects.toThrow(
      'permits must be at most limit: got permits 3 with limit 2.',
    );
    await using _three = await locks.acquirePermits('b', { policy: 'partner', permits: 3, limit: 3 });
  });

  const REFUSED: [message: string, run: (locks: LockService) => Promise<unknown>][] = [
    [
      'There is no policy "slwo": expected "slow", "long", "kept", "partner".',
      (locks) => locks.acquire('a', { policy: 'slwo' }),
    ],
    ['There is no policy "toString": expected "slow"', (locks) => locks.tryAcquire('a', { policy: 'toString' })],
    ['policy must be the name of a policy: got 5.', (locks) => locks.withLock('a', { policy: 5 as never }, () => {})],
    ['policy must be the name of a policy: got "".', (locks) => locks.acquireAll(['a'], { policy: '' })],
    ['There is no policy "slwo": expected', (locks) => locks.acquirePermits('a', { policy: 'slwo' })],
    [
      'The policy "slow" has no limit, the number of permits of the key: add it to the policy or to the call.',
      (locks) => locks.withPermits('a', { policy: 'slow' }, () => {}),
    ],
    [
      'The policy "partner" has a limit, which a lock does not have',
      (locks) => locks.acquire('a', { policy: 'partner' }),
    ],
    [
      'The policy "kept" has holdMs, which permits do not have',
      (locks) => locks.acquirePermits('a', { policy: 'kept', limit: 2 }),
    ],
    ['A shared lock cannot be kept after its work', (locks) => locks.acquire('a', { policy: 'kept', mode: 'shared' })],
    [
      'maxHoldMs must be at least holdMs: got maxHoldMs 50 with holdMs 600000.',
      (locks) => locks.acquire('a', { policy: 'kept', maxHoldMs: 50 }),
    ],
  ];

  it.each(REFUSED)('is refused if the combination is invalid: %s [G865]', async (message, run) => {
    const locks = await open();
    const error = await run(locks).catch((reason: unknown) => reason);
    expect(error).toBeInstanceOf(LockOptionsError);
    expect((error as Error).message).toContain(message);
    expect(await locks.isLocked('a')).toBe(false);
  });
});

describe('policies of a registration', () => {
  const BAD: [policies: unknown, message: string, more?: Partial<RedisLockModuleOptions>][] = [
    [5, 'policies must be an object with a policy for each name, like { slow: { ttlMs: 120_000 } }: got 5.'],
    [[], 'policies must be an object with a policy for each name, like { slow: { ttlMs: 120_000 } }: got an array.'],
    [{ slow: undefined }, 'policies.slow must be an object with options: got undefined.'],
    [{ '': {} }, 'A policy needs a name: got "" in policies.'],
    [
      { slow: { ttlMs: 19 } },
      'policies.slow.ttlMs must be a whole number of milliseconds from 20 to 86400000: got 19.',
    ],
    [
      { slow: { holdMs: -1 } },
      'policies.slow.holdMs must be a whole number of milliseconds from 0 to 86400000: got -1.',
    ],
    [{ slow: {}, partner: { limit: 0 } }, 'policies.partner.limit must be a whole number from 1 to 1000: got 0.'],
    [
      { slow: { ttl: 5 } },
      'In policies.slow: There is no option "ttl": expected ttlMs, waitMs, watchdog, reentrant, onTransaction, awaitRelease, holdMs, maxHoldMs, limit. Did you mean ttlMs?',
    ],
    [{ slow: { onContended: 'skip' } }, 'It depends on the code: set it where the policy is used.'],
    [{ slow: { onUnavailable: 'skip' } }, 'It depends on the code: set it where the policy is used.'],
    [
      { slow: { holdMs: 10, maxHoldMs: 5 } },
      'In policies.slow: maxHoldMs must be at least holdMs: got maxHoldMs 5 with holdMs 10.',
    ],
    [
      { slow: { ttlMs: 100 } },
      'In policies.slow: marginMs must be less than nine tenths of ttlMs: got marginMs 95 with ttlMs 100.',
      { marginMs: 95 },
    ],
    [
      { slow: { onTransaction: 'refuse' } },
      'In policies.slow: onTransaction "refuse" needs the module option insideTransaction',
    ],
  ];

  it.each(BAD)('are checked when the application starts: %j says %s [G866]', async (wrong, message, more) => {
    const starting = makeApp({}, { memory: true, ...more, policies: wrong } as RedisLockModuleOptions);
    await expect(starting).rejects.toThrow(LockOptionsError);
    await expect(starting).rejects.toThrow(message);
  });
});

describe('a method that names a policy', () => {
  @Injectable()
  class Imports {
    constructor(@InjectLockService() readonly locks: LockService) {}

    @Locked('import:{0}', { policy: 'slow' })
    async import(_id: string): Promise<number> {
      return this.locks.current().remainingMs;
    }
  }

  it('has its options, from whichever registration the application has [G868]', async () => {
    for (const ttlMs of [120_000, 240_000]) {
      const { app, locks } = await makeApp(
        { providers: [Imports] },
        { memory: true, policies: { ...policies, slow: { ttlMs, waitMs: 0 } } },
      );
      const imports = app.get(Imports);
      expect(await imports.import('7')).toBeGreaterThan(ttlMs / 2);
      await using _held = await locks.acquire('import:7');
      const refusal: unknown = await imports.import('7').catch((error: unknown) => error);
      expect(refusal).toBeInstanceOf(LockContendedError);
      expect((refusal as LockContendedError).waitedMs).toBeLessThan(5_000); // without the policy it waits for 10 s
    }
  });

  /** The message without the name of the method and its module. */
  async function refusalAtStart(
    decorate: MethodDecorator,
    options: LockOptions = { memory: true, policies },
  ): Promise<string> {
    class Job {
      async run(): Promise<undefined> {}
    }
    const descriptor = Object.getOwnPropertyDescriptor(Job.prototype, 'run')!;
    decorate(Job.prototype, 'run', descriptor);
    Object.defineProperty(Job.prototype, 'run', descriptor);
    Injectable()(Job);
    const starting = makeApp({ providers: [Job], imports: [ScheduleModule.forRoot()] }, options);
    const error = await starting.then(
      () => undefined,
      (reason: unknown) => reason,
    );
    expect(error).toBeInstanceOf(LockOptionsError);
    const { message } = error as LockOptionsError;
    expect(message).toMatch(/^Job\.run in RootTestModule is /);
    return message.replace('Job.run in RootTestModule is ', '');
  }

  const cron = (options: Partial<LockedCronOptions>) => LockedCron('0 0 1 1 *', 'job', options as LockedCronOptions);

  const AT_START: [message: string, decorator: MethodDecorator][] = [
    ['@Locked. There is no policy "slwo": expected "slow", "long", "kept"', Locked('job', { policy: 'slwo' })],
    ['@Limited. There is no policy "slwo": expected "slow", "long", "kept"', Limited('job', { policy: 'slwo' })],
    [
      '@Limited. The policy "slow" has no limit, the number of permits of the key: add it to the policy or to the call.',
      Limited('job', { policy: 'slow' }),
    ],
    ['@Locked. The policy "partner" has a limit, which a lock does not have', Locked('job', { policy: 'partner' })],
    ['@LockedCron. There is no policy "slwo"', cron({ policy: 'slwo' })],
    [
      '@LockedCron. The policy "slow" has no holdMs, the time to keep the lock of a run: add it to the policy or the decorator',
      cron({ policy: 'slow' }),
    ],
  ];

  it.each(AT_START)(
    'is refused when the application starts if its policy does not fit: %s',
    async (message, decorate) => {
      expect(await refusalAtStart(decorate)).toContain(message);
    },
  );
});
