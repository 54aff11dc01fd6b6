import { Controller, Get, Injectable, Param, ServiceUnavailableException, type ExecutionContext } from '@nestjs/common';
import { ScheduleModule } from '@nestjs/schedule';
import { fromContext, Limited, Locked, type LockUnavailableError } from 'nest-redis-lock';
import { LockedCron, type LockedCronOptions } from 'nest-redis-lock/schedule';
import { getLockBenchToken, LockTestingModule, type LockBench } from 'nest-redis-lock/testing';
import { expect, it } from 'vitest';
import { makeApp, sharedApp } from '../support/nest-app.js';

const registration = 'bench';

@Controller()
class Handlers {
  @Get('skip/:id')
  @Locked('{params.id}', { registration, onUnavailable: 'skip' })
  async skip(@Param('id') _id: string): Promise<string | undefined> {
    return 'ran';
  }

  @Get('static')
  @Locked('a', { registration, onUnavailable: 'skip' })
  async static(): Promise<string | undefined> {
    return 'ran';
  }

  @Get('arguments/:id')
  @Locked('a', {
    registration,
    onUnavailable: (error, id) => `${id}: ${error.code}`,
  })
  async arguments(@Param('id') _id: string): Promise<string> {
    return 'ran';
  }

  @Get('template/:id')
  @Locked('{params.id}', {
    registration,
    onUnavailable: (error, context) => `${context.getHandler().name}: ${error.method}`,
  })
  async template(@Param('id') _id: string): Promise<string> {
    return 'ran';
  }

  @Get('context/:id')
  @Limited(fromContext((context) => context.switchToHttp().getRequest().params.id), {
    registration,
    limit: 2,
    onUnavailable: async (error: LockUnavailableError, context: ExecutionContext) =>
      `${context.getType()}: ${error.key}`,
  })
  async context(@Param('id') _id: string): Promise<string> {
    return 'ran';
  }

  @Get('failing/:id')
  @Locked('{params.id}', {
    registration,
    onUnavailable: () => {
      throw new ServiceUnavailableException('Try again later.');
    },
  })
  async failing(@Param('id') _id: string): Promise<string> {
    return 'ran';
  }

  @Get('throw/:id')
  @Locked('{params.id}', { registration, onContended: () => 'busy' })
  async throw(@Param('id') _id: string): Promise<string> {
    return 'ran';
  }
}

const test = sharedApp({
  controllers: [Handlers],
  imports: [LockTestingModule.forRoot({ name: registration })],
});
const bench = () => test.app.get<LockBench>(getLockBenchToken(registration));

async function ask(path: string): Promise<[status: number, answer: string]> {
  const response = await fetch(`${test.url}/${path}`);
  return [response.status, await response.text()];
}

it.each([
  ['skip/a', 200, ''],
  ['static', 200, ''],
  ['arguments/a', 200, 'a: LOCK_UNAVAILABLE'],
  ['template/a', 200, 'template: Handlers.template'],
  ['context/a', 200, 'http: a'],
  ['failing/a', 503, '{"message":"Try again later.","error":"Service Unavailable","statusCode":503}'],
  ['throw/a', 503, '{"statusCode":503,"message":"Service Unavailable"}'],
])(
  'a handler whose lock is unavailable answers without a lock, as onUnavailable says: %s [G932]',
  async (path, status, answer) => {
    bench().refuse('a', 'unavailable');
    expect(await ask(path)).toEqual([status, answer]);
    expect(await ask(path)).toEqual([200, 'ran']);
  },
);

it.each([
  ['throws', undefined, 'LOCK_UNAVAILABLE', []],
  ['is skipped', 'skip', undefined, []],
  [
    'calls a function, whose value is ignored',
    (error: LockUnavailableError) => told.push(error.code),
    undefined,
    ['LOCK_UNAVAILABLE'],
  ],
] as const)(
  'a cron job whose lock is unavailable %s, as onUnavailable says, and rejects when the application has closed',
  async (_, onUnavailable, outcome, tells) => {
    told.length = 0;
    const options: LockedCronOptions = { holdMs: 50, registration, onUnavailable };
    @Injectable()
    class Job {
      @LockedCron('0 0 1 1 *', 'job', options)
      async run(): Promise<string | undefined> {
        return 'ran';
      }
    }
    const bench = LockTestingModule.forRoot({ name: registration });
    const { app } = await makeApp({ providers: [Job], imports: [ScheduleModule.forRoot(), bench] });
    app.get<LockBench>(getLockBenchToken(registration)).refuse('job', 'unavailable');
    expect(
      await app
        .get(Job)
        .run()
        .catch(({ code }: LockUnavailableError) => code),
    ).toBe(outcome);
    expect(told).toEqual(tells);
    expect(await app.get(Job).run()).toBe('ran');
    await app.close();
    await expect(app.get(Job).run()).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
  },
);

const told: string[] = [];
