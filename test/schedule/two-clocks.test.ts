import { afterAll, beforeAll, describe, expect, it } from 'vitest';
import { DrivenProcess } from '../support/driven-process.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

/** A record of a process about a due job, at a second of its own clock. */
interface Due {
  job: string;
  second: number;
  did: 'run' | 'skip';
  /** How long after the second it began. */
  lateMs: number;
}

/**
 * An instance of an application with cron jobs, whose clock is ahead by this much. The caller that starts it kills it.
 */
class CronProcess extends DrivenProcess {
  static start(redis: string, clockMs: number): Promise<CronProcess> {
    return new CronProcess(new URL('cron-process.worker.mjs', import.meta.url), { redis, clockMs }).ready();
  }

  due(): Promise<Due[]> {
    return this.ask('due');
  }
}

/** They differ by less than the `holdMs` of the jobs. */
const CLOCKS_MS = [0, -300];
const JOBS = ['quick', 'throwing'];

describe('a job of @LockedCron that is due each second in two instances whose clocks differ', () => {
  let redis: RedisServer;
  let instances: CronProcess[] = [];
  let due: Due[];

  /**
   * The records of both instances, for each second in which the job was due in both. Seconds in which a busy machine
   * ran the job late prove nothing, nor do the following ones, for which a late job may have kept the lock.
   */
  const didOf = (job: string): string[][] => {
    const ofJob = due.filter((one) => one.job === job);
    const seconds = [...new Set(ofJob.map(({ second }) => second))];
    return seconds
      .filter((second) => ofJob.every((one) => second - one.second > 1 || one.second > second || one.lateMs < 200))
      .map((second) => ofJob.filter((one) => one.second === second).map(({ did }) => did))
      .filter((both) => both.length === 2)
      .map((both) => both.sort());
  };

  beforeAll(async () => {
    redis = await RedisServer.start();
    instances = await Promise.all(CLOCKS_MS.map((clockMs) => CronProcess.start(redis.url, clockMs)));
    await until(
      async () => {
        due = (await Promise.all(instances.map((instance) => instance.due()))).flat();
        return JOBS.every((job) => didOf(job).length >= 2);
      },
      { what: 'each job was due twice in both instances' },
    );
  });
  afterAll(async () => {
    await Promise.all(instances.map((instance) => instance.kill()));
    await redis.stop();
  });

  it('runs once each time, in one of them, if holdMs is longer than the difference of their clocks [G380]', () => {
    for (const did of didOf('quick')) expect(did).toEqual(['run', 'skip']);
  });

  it('runs once each time even if it throws [G384]', () => {
    for (const did of didOf('throwing')) expect(did).toEqual(['run', 'skip']);
  });
});
