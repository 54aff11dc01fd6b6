import { onTestFinished } from 'vitest';
import { DrivenProcess } from '../support/driven-process.js';

/** A process with four lock services, which is killed when the test has finished. */
export class LockWorker extends DrivenProcess {
  static start(url: string): Promise<LockWorker> {
    const started = new LockWorker(new URL('lock.worker.mjs', import.meta.url), { url });
    onTestFinished(() => started.kill());
    return started.ready();
  }

  /** Lets the next of its services wait for a lock. */
  wait(key: string): Promise<void> {
    return this.ask('wait', key);
  }

  /** Holds a lock, and has listened for another. */
  holdAndWait(): Promise<void> {
    return this.ask('holdAndWait');
  }

  /**
   * Closes its locks, and ends by itself: nothing else keeps it running.
   * @returns its exit code
   */
  async closeAndEnd(): Promise<number | null> {
    const ended = new Promise<number | null>((resolve) => this.child.once('exit', resolve));
    void this.ask('close');
    return ended;
  }
}
