import { Injectable } from '@nestjs/common';
import { ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { LockOptionsError, LockService } from 'nest-redis-lock';
import { LockedCron } from 'nest-redis-lock/schedule';
import { expect, it } from 'vitest';
import { makeApp } from '../support/nest-app.js';

const NEVER = '0 0 1 1 *';

@Injectable()
class Crons {
  @LockedCron(NEVER, 'crons', { holdMs: 30_000 })
  async run(): Promise<void> {}
}

@Injectable()
class Jobs {
  ran: string[] = [];
  constructor(private readonly locks: LockService) {}

  @LockedCron(NEVER, 'nightly', { holdMs: 30_000, name: 'nightly', timeZone: 'Europe/Berlin', waitForCompletion: true })
  async nightly(): Promise<string | undefined> {
    this.ran.push(this.locks.current().key);
    return 'ran';
  }
}

it('@LockedCron schedules the method as @Cron does, and runs it under its lock [G381]', async () => {
  const { app, events } = await makeApp({ imports: [ScheduleModule.forRoot()], providers: [Jobs] });
  const job = app.get(SchedulerRegistry).getCronJob('nightly');
  expect([job.cronTime.source, job.cronTime.timeZone]).toEqual([NEVER, 'Europe/Berlin']);
  await job.fireOnTick();
  expect(app.get(Jobs).ran).toEqual(['nightly']);
  expect(events.at(-1)).toMatchObject({ type: 'released', key: 'nightly', keptUntil: expect.any(Date) });
});

it('a run of @LockedCron is skipped at once, and nothing logged, while another holder has the lock [G382]', async () => {
  const { app, locks, log } = await makeApp({ imports: [ScheduleModule.forRoot()], providers: [Jobs] });
  const lock = await locks.acquire('nightly');
  await app.get(SchedulerRegistry).getCronJob('nightly').fireOnTick();
  expect(await app.get(Jobs).nightly()).toBeUndefined();
  expect([app.get(Jobs).ran, log.lines]).toEqual([[], []]);
  await lock.release();
  expect(await app.get(Jobs).nightly()).toBe('ran');
});

it('the start of an application warns about @LockedCron without ScheduleModule, which would run its jobs, and names the import [G556]', async () => {
  class MoreJobs extends Jobs {}
  const { log } = await makeApp({ providers: [Jobs, MoreJobs, { provide: 'alias', useExisting: Jobs }] });
  expect(log.lines).toEqual([
    'warn Jobs.nightly is @LockedCron, but no module imports ScheduleModule.forRoot() of @nestjs/schedule: nothing calls ' +
      'the method. Add that module to the imports of the root module.',
  ]);
});

it('an application does not start with @LockedCron without RedisLockModule, and the error names the import [G557]', async () => {
  const starting = Test.createTestingModule({ imports: [ScheduleModule.forRoot()], providers: [Crons] }).compile();
  await expect(starting).rejects.toThrow('RedisLockModule.forRoot()');
});

type Options = { holdMs?: unknown; maxHoldMs?: number; ttlMs?: number } | undefined;

it.each<[key: unknown, options: Options, problem: string]>([
  [
    'job:{0}',
    { holdMs: 50 },
    'the key must be a fixed string like "nightly", since a cron job has no arguments: got "job:{0}"',
  ],
  ['job:{params.id}', { holdMs: 50 }, 'the key must be a fixed string like "nightly"'],
  [
    ['a', 'b'],
    { holdMs: 50 },
    'the key must be a fixed string like "nightly", since a cron job has no arguments: got an array',
  ],
  [undefined, { holdMs: 50 }, 'got undefined'],
  ['', { holdMs: 50 }, 'the key "" cannot be read: it is empty.'],
  [
    'job',
    undefined,
    'holdMs must be a number of milliseconds, more than the difference between the clocks of the instances',
  ],
  ['job', {}, 'got undefined.'],
  ['job', { holdMs: 0 }, 'got 0.'],
  ['job', { holdMs: NaN }, 'got NaN.'],
  ['job', { holdMs: 0.5 }, 'holdMs must be a whole number of milliseconds'],
  ['job', { holdMs: 50, maxHoldMs: 49 }, 'maxHoldMs must be at least holdMs: got maxHoldMs 49 with holdMs 50.'],
  ['job', { holdMs: 50, ttlMs: 1 }, 'ttlMs must be a whole number of milliseconds from 20'],
])('@LockedCron is refused when the class is defined for the key %j with %j [G383]', (key, options, problem) => {
  const define = () => {
    class Wrong {
      @(LockedCron(NEVER, key as 'job', options as { holdMs: number }) as MethodDecorator)
      async run(): Promise<void> {}
    }
    return Wrong;
  };
  expect(define).toThrow(LockOptionsError);
  expect(define).toThrow(/^@Locked(Cron)? on Wrong\.run: [^@]*$/); // its place is named once
  expect(define).toThrow(problem);
});
