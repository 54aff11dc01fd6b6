import { DrivenProcess } from '../support/driven-process.js';

/** What a process did when a job was due, at a second of its own clock. */
export interface Due {
  job: string;
  second: number;
  did: 'run' | 'skip';
  /** How long after the second began. */
  lateMs: number;
}

/** An instance of an application with cron jobs, whose clock is ahead by so much. Whoever starts it kills it. */
export class CronProcess extends DrivenProcess {
  static start(redis: string, clockMs: number): Promise<CronProcess> {
    return new CronProcess(new URL('cron-process.worker.mjs', import.meta.url), { redis, clockMs }).ready();
  }

  due(): Promise<Due[]> {
    return this.ask('due');
  }
}
