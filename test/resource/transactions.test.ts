import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { postgresOfFile } from '../sql/stage.js';
import { DrivenProcess } from '../support/driven-process.js';
import { untilQueued } from '../support/queue.js';
import { serverOfFile } from '../support/stage.js';
import { until } from '../support/until.js';

/**
 * A separate process that counts in a row, under `@Locked` and `@Transactional`: transactional-counter.worker.mjs says
 * how. The caller that starts it kills it.
 */
class TransactionalCounter extends DrivenProcess {
  static start(settings: { redis: string; database: string }): Promise<TransactionalCounter> {
    return new TransactionalCounter(new URL('transactional-counter.worker.mjs', import.meta.url), settings).ready();
  }

  /** Adds one to the value that it reads. */
  add(counting: 'transactionOutside' | 'lockOutside' | 'fenced'): Promise<void> {
    return this.ask('add', counting);
  }

  /** @returns the fencing token */
  acquire(ttlMs: number): Promise<number> {
    return this.ask('acquire', ttlMs);
  }

  release(): Promise<boolean> {
    return this.ask('release');
  }

  write(total: number): Promise<void> {
    return this.ask('write', total);
  }

  /** Transactions stop before their commit from now on, until `letCommit`. */
  holdCommits(): Promise<void> {
    return this.ask('holdCommits');
  }

  letCommit(): Promise<void> {
    return this.ask('letCommit');
  }

  async isAtCommit(): Promise<void> {
    await until(async () => (await this.state()).isAtCommit, { what: 'its transaction is about to commit' });
  }

  state(): Promise<{ reads: number; isAtCommit: boolean; warnings: string[] }> {
    return this.ask('state');
  }

  /** The counts and the warnings so far; commits no longer stop. */
  forget(): Promise<void> {
    return this.ask('forget');
  }
}

const redis = await serverOfFile();
const database = await postgresOfFile();
await database.query('CREATE TABLE stock (id text PRIMARY KEY, total int, fence bigint NOT NULL)');
let first: TransactionalCounter;
let second: TransactionalCounter;

beforeAll(async () => {
  const start = () => TransactionalCounter.start({ redis: redis.url, database: database.url });
  [first, second] = await Promise.all([start(), start()]);
});
beforeEach(async () => {
  await redis.command('FLUSHALL'); // a failed test leaves its lock behind
  await Promise.all([first.forget(), second.forget()]);
  await database.query("DELETE FROM stock; INSERT INTO stock VALUES ('tea', 0, 0)");
});
afterAll(() => Promise.all([first.kill(), second.kill()]));

const total = async () => (await database.query('SELECT total FROM stock'))[0]!.total;

it('two processes do not overwrite each other when one is paused and the row checks the token [G27]', async () => {
  const token = await first.acquire(1_000);
  const read = await total();
  onTestFinished(() => first.resume());
  first.pause();
  expect(await second.acquire(60_000)).toBeGreaterThan(token);
  await second.write(Number(await total()) + 5);
  await second.release();
  const late = first.write(Number(read) + 1);
  first.resume();
  await expect(late).rejects.toThrow('StaleTokenError');
  expect(await total()).toBe(5);
});

it('two processes lose an update with @Transactional above @Locked: the lock is free before the commit [G35]', async () => {
  await Promise.all([first.holdCommits(), second.holdCommits()]);
  const adding = first.add('transactionOutside');
  await first.isAtCommit();
  const other = second.add('transactionOutside'); // the lock is free, and the row as it was
  await until(async () => (await second.state()).reads === 1, { what: 'it has read the row' });
  await first.letCommit();
  await adding;
  await second.letCommit();
  await other;
  expect(await total()).toBe(1);
  const named = expect.stringContaining('Counter.transactionOutside takes the lock "counter:tea" inside a transaction');
  expect((await first.state()).warnings).toEqual([named]);
  expect((await second.state()).warnings).toEqual([named]);
});

it('two processes lose nothing with @Locked above @Transactional: the next one reads what was committed [G34]', async () => {
  await first.holdCommits();
  const adding = first.add('lockOutside');
  await first.isAtCommit();
  const other = second.add('lockOutside');
  await untilQueued(redis, 'counter:tea', 1);
  expect((await second.state()).reads).toBe(0);
  await first.letCommit();
  await Promise.all([adding, other]);
  expect(await total()).toBe(2);
  expect((await second.state()).warnings).toEqual([]);
});

it('fencedUpdate refuses a commit that comes after the commit of a later holder [G36]', async () => {
  await first.holdCommits();
  const adding = first.add('fenced');
  await first.isAtCommit();
  await second.add('fenced');
  await first.letCommit();
  await expect(adding).rejects.toThrow('StaleTokenError');
  expect(await total()).toBe(1);
});
