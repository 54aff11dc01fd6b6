import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import { DrivenProcess } from '../support/driven-process.js';
import { untilQueued } from '../support/queue.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';
import { DATABASES, tableName, type Database } from './database.js';

/** When a transaction sends its writes: during its work, or all at its end, like a unit of work. */
type Writes = 'at once' | 'at the commit';

/**
 * Which decorator is above the other. `fenced` is `transactionOutside` whose write checks the fencing token; `claimed`
 * is `transactionOutside` that claims the row for its token before it reads.
 */
type Counting = 'transactionOutside' | 'lockOutside' | 'fenced' | 'claimed';

/**
 * A separate process that counts in a row, under `@Locked` and `@Transactional`. The caller that starts it kills it.
 */
class TransactionalCounter extends DrivenProcess {
  static start(settings: {
    redis: string;
    database: string;
    table: string;
    writes: Writes;
  }): Promise<TransactionalCounter> {
    return new TransactionalCounter(new URL('transactional-counter.worker.mjs', import.meta.url), settings).ready();
  }

  /** Adds one to the value that it reads. */
  add(counting: Counting, id: string): Promise<void> {
    return this.ask('add', counting, id);
  }

  /** The same several times, all at once. */
  addMany(counting: Counting, id: string, count: number): Promise<void> {
    return this.ask('addMany', counting, id, count);
  }

  /** The counts and the warnings so far; commits no longer stop. */
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

let redis: RedisServer;
let database: Database;
let table: string;
let first: TransactionalCounter;
let second: TransactionalCounter;

/** Two processes, and a row to which both add. */
function setUp(open: () => Promise<Database>, writes: Writes): void {
  beforeAll(async () => {
    [database, redis] = await Promise.all([open(), RedisServer.start()]);
    table = tableName();
    await database.pool.query(
      `CREATE TABLE ${table} (id text PRIMARY KEY, total int, fence bigint NOT NULL DEFAULT 0)`,
    );
    const settings = { redis: redis.url, database: database.url, table, writes };
    [first, second] = await Promise.all([TransactionalCounter.start(settings), TransactionalCounter.start(settings)]);
  });

  beforeEach(async () => {
    await redis.command('FLUSHALL'); // a failed test leaves its lock behind
    await Promise.all([first.forget(), second.forget()]);
    await database.pool.query(`DELETE FROM ${table}`);
    await database.pool.query(`INSERT INTO ${table} VALUES ('tea', 0)`);
  });

  afterAll(async () => {
    await Promise.all([first.kill(), second.kill()]);
    await database.pool.query(`DROP TABLE ${table}`);
    await Promise.all([redis.stop(), database.stop()]);
  });
}

async function total(): Promise<number> {
  const { rows } = await database.pool.query<{ total: number }>(`SELECT total FROM ${table}`);
  return rows[0]!.total;
}

const untilAtCommit = (counter: TransactionalCounter) =>
  until(async () => (await counter.state()).isAtCommit, { what: 'its transaction is about to commit' });
const untilRead = (counter: TransactionalCounter) =>
  until(async () => (await counter.state()).reads === 1, { what: 'it has read the row' });

/**
 * PGlite has one session: while a transaction is open in it, all other calls wait, even reads. So it can show what
 * happens between two open transactions only if they send their writes at the commit; a server with sessions shows it
 * in both ways.
 */
const [PGLITE, ...SERVERS] = DATABASES;
const STAGES: [name: string, writes: Writes, open: () => Promise<Database>][] = [
  [PGLITE![0], 'at the commit', PGLITE![1]],
  ...SERVERS.flatMap(([name, open]): typeof STAGES => [
    [name, 'at the commit', open],
    [name, 'at once', open],
  ]),
];

describe.each(STAGES)('on %s, with transactions that write %s,', (_name, writes, open) => {
  setUp(open, writes);

  it('two processes lose an update with @Transactional above @Locked: the lock is free before the commit [G35]', async () => {
    await Promise.all([first.holdCommits(), second.holdCommits()]);
    const adding = first.add('transactionOutside', 'tea');
    await untilAtCommit(first);
    const other = second.add('transactionOutside', 'tea'); // the lock is free, and the row as it was
    await untilRead(second);
    await first.letCommit();
    await adding;
    await second.letCommit();
    await other;
    expect(await total()).toBe(1);
    const named = expect.stringContaining(
      'Counter.transactionOutside takes the lock "counter:tea" inside a transaction',
    );
    expect((await first.state()).warnings).toEqual([named]);
    expect((await second.state()).warnings).toEqual([named]);
  });

  it('two processes lose nothing with @Locked above @Transactional: the next one reads what was committed [G34]', async () => {
    await first.holdCommits();
    const adding = first.add('lockOutside', 'tea');
    await untilAtCommit(first);
    const other = second.add('lockOutside', 'tea');
    await untilQueued(redis, 'counter:tea', 1);
    expect((await second.state()).reads).toBe(0);
    await first.letCommit();
    await Promise.all([adding, other]);
    expect(await total()).toBe(2);
    expect((await second.state()).warnings).toEqual([]);
  });

  switch (writes) {
    case 'at the commit':
      it('fencedUpdate refuses a commit that comes after the commit of a later holder [G36]', async () => {
        await first.holdCommits();
        const adding = first.add('fenced', 'tea');
        await untilAtCommit(first);
        await second.add('fenced', 'tea');
        await first.letCommit();
        await expect(adding).rejects.toThrow('StaleTokenError');
        expect(await total()).toBe(1);
      });
      break;
    case 'at once':
      it('a row that is claimed before it is read keeps all updates, even with @Transactional above @Locked', async () => {
        await Promise.all([first, second].map((counter) => counter.addMany('claimed', 'tea', 100)));
        expect(await total()).toBe(200);
      });
  }
});
