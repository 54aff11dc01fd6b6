import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import { compileLibrary } from './compiled-library.js';
import { killProcess } from './kill-process.js';
import { killWithParent } from '../../servers/kill-with-parent.js';

/**
 * A separate process that can be stopped and killed. It ends with this one at the latest: the caller that starts it
 * kills it.
 */
export abstract class StoppableProcess {
  constructor(protected readonly child: ChildProcess) {
    killWithParent(child);
  }

  get pid(): number {
    return this.child.pid!;
  }

  // By number: Deno treats a child as ended once `kill()` has sent it any signal.
  pause(): void {
    process.kill(this.pid, 'SIGSTOP');
  }

  resume(): void {
    process.kill(this.pid, 'SIGCONT');
  }

  /** kill -9, which also ends a paused process. */
  kill(): Promise<void> {
    return killProcess(this.child);
  }
}

interface Answer {
  id: number;
  value?: unknown;
  error?: string;
}

/** A process that uses the compiled library, and executes requests: serve-duties.mjs is the other end. */
export abstract class DrivenProcess extends StoppableProcess {
  readonly #open = new Map<number, { resolve: (value: unknown) => void; reject: (error: Error) => void }>();
  #lastId = 0;

  protected constructor(worker: URL, settings: object) {
    super(fork(fileURLToPath(worker), [compileLibrary(), JSON.stringify(settings)], { execArgv: [] }));
    this.child.on('message', ({ id, value, error }: Answer) => {
      const waiting = this.#open.get(id);
      this.#open.delete(id);
      if (error === undefined) waiting?.resolve(value);
      else waiting?.reject(new Error(error));
    });
  }

  /** Waits until it accepts requests: that is its first message. */
  protected async ready(): Promise<this> {
    const exit = once(this.child, 'exit').then(([code, signal]) => {
      throw new Error(`${this.constructor.name} ended with ${signal ?? code} before it was ready.`);
    });
    await Promise.race([once(this.child, 'message'), exit]);
    exit.catch(() => {});
    return this;
  }

  /** A killed process sends no answer, and no error either: tests kill it during its work. */
  protected ask<T>(duty: string, ...args: unknown[]): Promise<T> {
    const id = ++this.#lastId;
    this.child.send({ id, duty, args });
    return new Promise<T>((resolve, reject) => {
      this.#open.set(id, { resolve: resolve as (value: unknown) => void, reject });
    });
  }
}
