import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { onTestFinished } from 'vitest';
import type { AcquireOptions, RedisLockModuleOptions } from '../../lib/options.js';
import { compileLibrary } from './compiled-library.js';
import { killWithParent } from './kill-with-parent.js';

interface Answer {
  id: number;
  value?: unknown;
  error?: string;
}

/** One turn under a lock; the times, in nanoseconds, are of one clock for all processes. */
export interface Turn {
  fencingToken: number;
  from: string;
  to: string;
}

/** A process of its own that holds locks, to be stopped and killed. It ends with the test. */
export class LockProcess {
  readonly #open = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  #lastId = 0;

  private constructor(private readonly child: ChildProcess) {
    child.on('message', ({ id, value, error }: Answer) => {
      const waiting = this.#open.get(id);
      this.#open.delete(id);
      if (error === undefined) waiting?.resolve(value);
      else waiting?.reject(new Error(error));
    });
  }

  static async start(options: RedisLockModuleOptions): Promise<LockProcess> {
    const worker = fileURLToPath(new URL('lock-process.worker.mjs', import.meta.url));
    const child = fork(worker, [compileLibrary(), JSON.stringify(options)], { execArgv: [] });
    killWithParent(child);
    const running = new LockProcess(child);
    onTestFinished(() => running.kill());
    const exit = once(child, 'exit').then(([code]) => {
      throw new Error(`The process that holds locks ended with ${String(code)}.`);
    });
    await Promise.race([once(child, 'message'), exit]);
    exit.catch(() => {});
    return running;
  }

  acquire(key: string, options: AcquireOptions = {}): Promise<{ owner: string; fencingToken: number }> {
    return this.#ask('acquire', key, options);
  }

  release(key: string): Promise<boolean> {
    return this.#ask('release', key);
  }

  /** Ends the last `acquire` of this key, if it still waits. */
  abort(key: string): Promise<void> {
    return this.#ask('abort', key);
  }

  /** Has so many waiters take the lock so many times each. */
  turns(key: string, duty: { waiters: number; turns: number; request?: AcquireOptions }): Promise<Turn[]> {
    return this.#ask('turns', key, duty);
  }

  /** Has the process look at the lock all the time, until it sees that it did not run for `pausedMs`. */
  lookForPause(key: string, pausedMs: number): Promise<void> {
    return this.#ask('lookForPause', key, pausedMs);
  }

  /** What the lock said in the first line that ran after that pause. */
  firstLook(): Promise<{ isHeld: boolean; aborted: boolean; reason?: string }> {
    return this.#ask('firstLook');
  }

  get pid(): number {
    return this.child.pid!;
  }

  pause(): void {
    this.child.kill('SIGSTOP');
  }

  resume(): void {
    this.child.kill('SIGCONT');
  }

  /** kill -9, which ends a paused process too. */
  async kill(): Promise<void> {
    if (this.child.exitCode !== null || this.child.signalCode !== null) return;
    const exited = once(this.child, 'exit');
    this.child.kill('SIGKILL');
    await exited;
  }

  #ask<T>(duty: string, ...args: unknown[]): Promise<T> {
    const id = ++this.#lastId;
    this.child.send({ id, duty, args });
    return new Promise<T>((resolve, reject) => {
      this.#open.set(id, { resolve: resolve as (value: unknown) => void, reject });
    });
  }
}
