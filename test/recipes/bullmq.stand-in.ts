// In place of bullmq and @nestjs/bullmq, which are not installed: as much of a worker and a job as the recipe uses.
import { Inject } from '@nestjs/common';

/** As in BullMQ, thrown by a processor that has moved its job to the delayed ones. */
export class DelayedError extends Error {
  override name = 'DelayedError';
}

export const Processor =
  (_queue: string, _options?: { concurrency?: number }): ClassDecorator =>
  () => {};

const tokenOf = (queue: string) => `BullQueue_${queue}`;

export const InjectQueue = (queue: string): ParameterDecorator => Inject(tokenOf(queue));

/** Keeps the jobs that were added, as JSON: a worker in another process reads that. */
export class Queue<Data = unknown> {
  readonly added: string[] = [];

  static provider(name: string, queue: Queue): { provide: string; useValue: Queue } {
    return { provide: tokenOf(name), useValue: queue };
  }

  async add(_name: string, data: Data): Promise<void> {
    this.added.push(JSON.stringify(data));
  }
}

export abstract class WorkerHost {
  abstract process(job: Job, token?: string): Promise<unknown>;
}

export class Job<Data = unknown> {
  state: 'waiting' | 'active' | 'delayed' | 'completed' | 'failed' = 'waiting';
  attemptsMade = 0;
  delayMs = 0;
  failedReason?: string;

  constructor(
    readonly data: Data,
    private readonly token = 'the token of the worker',
  ) {}

  async moveToDelayed(timestamp: number, token?: string): Promise<void> {
    if (token !== this.token) throw new Error('The job belongs to another worker.');
    this.delayMs = timestamp - Date.now();
    this.state = 'delayed';
  }

  /** What a worker does with a job: it leaves alone what its processor has delayed, and fails what throws another error. */
  async runOn(worker: WorkerHost): Promise<void> {
    this.state = 'active';
    try {
      await worker.process(this, this.token);
      this.state = 'completed';
    } catch (error) {
      if (error instanceof DelayedError) return;
      this.attemptsMade++;
      this.failedReason = (error as Error).message;
      this.state = 'failed';
    }
  }
}
