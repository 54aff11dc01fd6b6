import { Injectable } from '@nestjs/common';
import { ScheduleModule, SchedulerRegistry } from '@nestjs/schedule';
import { Test } from '@nestjs/testing';
import { LockService } from 'nest-redis-lock';
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
