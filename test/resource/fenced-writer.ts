import type { AcquireOptions } from '../../lib/index.js';
import { DrivenProcess } from '../support/driven-process.js';

/** A process of its own that writes under locks, to be paused. Whoever starts it kills it. */
export class FencedWriter extends DrivenProcess {
  static start(settings: { redis: string; database: string }): Promise<FencedWriter> {
    return new FencedWriter(new URL('fenced-writer.worker.mjs', import.meta.url), settings).ready();
  }

  /** Names the table of all that follows. */
  use(table: string): Promise<void> {
    return this.ask('use', table);
  }

  /** @returns the fencing token */
  acquire(key: string, options: AcquireOptions): Promise<number> {
    return this.ask('acquire', key, options);
  }

  release(): Promise<boolean> {
    return this.ask('release');
  }

  readBoxes(sku: string): Promise<number> {
    return this.ask('readBoxes', sku);
  }

  /** Whether it was written. */
  writeBoxes(sku: string, boxes: number): Promise<boolean> {
    return this.ask('writeBoxes', sku, boxes);
  }
}
