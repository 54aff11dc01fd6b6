import { fork, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { fileURLToPath } from 'node:url';
import type { AcquireOptions } from '../../lib/options.js';
import { compileLibrary } from '../support/compiled-library.js';
import { killWithParent } from '../support/kill-with-parent.js';

interface Answer {
  id: number;
  value?: unknown;
  error?: string;
}

/** A process of its own that writes under locks, to be paused. Whoever starts it kills it. */
export class FencedWriter {
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

  static async start(settings: { redis: string; database: string }): Promise<FencedWriter> {
    const worker = fileURLToPath(new URL('fenced-writer.worker.mjs', import.meta.url));
    const child = fork(worker, [compileLibrary(), JSON.stringify(settings)], { execArgv: [] });
    killWithParent(child);
    const writer = new FencedWriter(child);
    const exit = once(child, 'exit').then(([code]) => {
      throw new Error(`The process that writes ended with ${String(code)}.`);
    });
    await Promise.race([once(child, 'message'), exit]);
    exit.catch(() => {});
    return writer;
  }

  /** Names the table of all that follows. */
  use(table: string): Promise<void> {
    return this.#ask('use', table);
  }

  /** @returns the fencing token */
  acquire(key: string, options: AcquireOptions): Promise<number> {
    return this.#ask('acquire', key, options);
  }

  release(): Promise<boolean> {
    return this.#ask('release');
  }

  readBoxes(sku: string): Promise<number> {
    return this.#ask('readBoxes', sku);
  }

  /** Whether it was written. */
  writeBoxes(sku: string, boxes: number): Promise<boolean> {
    return this.#ask('writeBoxes', sku, boxes);
  }

  /** The same without a look at the token. */
  writeNaively(sku: string, boxes: number): Promise<boolean> {
    return this.#ask('writeNaively', sku, boxes);
  }

  /**
   * Writes once with each token, all at the same time.
   * @returns the tokens that were accepted
   */
  race(form: 'update' | 'upsert', sku: string, tokens: number[]): Promise<number[]> {
    return this.#ask('race', form, sku, tokens);
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
