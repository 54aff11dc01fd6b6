import { DrivenProcess } from '../support/driven-process.js';

/** When a transaction sends its writes: as it goes on, or all at its end, as a unit of work does. */
export type Writes = 'at once' | 'at the commit';

/**
 * Which decorator stands above the other. `fenced` is `transactionOutside` whose write looks at the fencing token; `claimed`
 * is `transactionOutside` that claims the row for its token before it reads.
 */
export type Counting = 'transactionOutside' | 'lockOutside' | 'fenced' | 'claimed';

/** A process of its own that counts in a row, under `@Locked` and `@Transactional`. Whoever starts it kills it. */
export class TransactionalCounter extends DrivenProcess {
  static start(settings: {
    redis: string;
    database: string;
    table: string;
    writes: Writes;
  }): Promise<TransactionalCounter> {
    return new TransactionalCounter(new URL('transactional-counter.worker.mjs', import.meta.url), settings).ready();
  }

  /** Adds one to what it reads. */
  add(counting: Counting, id: string): Promise<void> {
    return this.ask('add', counting, id);
  }

  /** The same as often, all at once. */
  addMany(counting: Counting, id: string, count: number): Promise<void> {
    return this.ask('addMany', counting, id, count);
  }

  /** What it has counted and was warned of; commits are held no longer. */
  forget(): Promise<void> {
    return this.ask('forget');
  }

  /** Transactions stop before their commit from now on, until `letCommit`. */
  holdCommits(): Promise<void> {
    return this.ask('holdCommits');
  }

  letCommit(): Promise<void> {
    return this.ask('letCommit');
  }

  state(): Promise<{ reads: number; isAtCommit: boolean; warnings: string[] }> {
    return this.ask('state');
  }
}
