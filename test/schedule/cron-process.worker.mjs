// An instance of an application with cron jobs; two-clocks.test.ts starts it.
import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ScheduleModule } from '@nestjs/schedule';
import { load, serve, settings } from '../support/serve-duties.mjs';

const { redis, clockMs } = settings;
const RightDate = Date;
globalThis.Date = class extends RightDate {
  constructor(...args) {
    super(...(args.length > 0 ? args : [RightDate.now() + clockMs]));
  }

  static now() {
    return RightDate.now() + clockMs;
  }
};

const { LockService, RedisLockModule } = await load('index.js');
const { LockedCron } = await load('schedule/index.js');

const due = [];
/** A timer may fire a little early: a time at most 100 ms before a second counts as in that second. */
const note = (job, did) => {
  const now = Date.now() + 100;
  due.push({ job, did, second: Math.floor(now / 1_000), lateMs: (now % 1_000) - 100 });
};

class Jobs {
  async quick() {
    note('quick', 'run');
  }

  async throwing() {
    note('throwing', 'run');
    throw new Error('of the job');
  }
}
for (const [job, holdMs] of [
  ['quick', 800],
  ['throwing', 800],
]) {
  const descriptor = Object.getOwnPropertyDescriptor(Jobs.prototype, job);
  LockedCron('* * * * * *', job, { holdMs })(Jobs.prototype, job, descriptor);
  Object.defineProperty(Jobs.prototype, job, descriptor);
}

class App {}
Module({ imports: [RedisLockModule.forRoot({ redis }), ScheduleModule.forRoot()], providers: [Jobs] })(App);

const app = await NestFactory.createApplicationContext(App, { logger: false });
app.get(LockService).events$.subscribe(({ type, key }) => {
  if (type === 'contended') note(key, 'skip');
});

serve({ due: () => due });
