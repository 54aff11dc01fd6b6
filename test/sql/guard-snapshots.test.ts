import { guardStatement } from 'nest-redis-lock/sql';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, describe, expect, it } from 'vitest';
import type { Lock, LockService } from 'nest-redis-lock';
import type { LockBackend } from 'nest-redis-lock/testing';
import { composeLocks } from '../../lib/compose/composition.js';
import { SQL } from '../../lib/compose/sql-lock-options.js';
import { acquireOn, claimOn, connectedSql, freshKey, holderOn, placeOf, type Claim } from '../support/claims.js';
import { expire, PATIENT, postgresOfFile, rowOf } from './stage.js';

const server = await postgresOfFile();
/** The process of the holder, and another one. */
let locks: LockService;
let other: LockBackend;
/** The connection of the holder's work. */
const work = new pg.Client(server.url);

beforeAll(async () => {
  const options = { postgres: server.url, createTable: true, shutdownTimeoutMs: 0, ...PATIENT };
  ({ service: locks } = await composeLocks(SQL, options).open());
  other = await connectedSql(options);
  await work.connect();
  await server.query('CREATE TABLE account (n int); INSERT INTO account VALUES (1)');
});
afterAll(async () => {
  await work.end();
  await other.close();
  await locks.onApplicationShutdown();
});

beforeEach(() => work.query('ROLLBACK')); // of a failed test

const isAcquired = async (claim: Claim, inLine = false): Promise<boolean> =>
  (await acquireOn(other, claim, inLine ? placeOf(claim.owner) : undefined)).status === 'acquired';

/** The ways in which another process becomes the holder, or the row is deleted. Each resolves to whether it did. */
const TAKEOVERS: [how: string, takeOver: (lock: Lock) => Promise<boolean>][] = [
  [
    'its lease ends, and another acquires it',
    async ({ key }) => {
      await expire(server, key);
      return isAcquired(claimOn(key));
    },
  ],
  [
    'its lease ends, and another acquires it in the order of the queue',
    async ({ key }) => {
      await expire(server, key);
      return isAcquired(claimOn(key), true);
    },
  ],
  ['it is released, and another acquires it', async (lock) => (await lock.release()) && isAcquired(claimOn(lock.key))],
  [
    'it is released to the first in the queue',
    async (lock) => {
      const claim = claimOn(lock.key);
      expect(await isAcquired(claim, true)).toBe(false);
      await lock.release();
      return (await holderOn(other, lock.key))?.owner === claim.owner;
    },
  ],
  [
    'its lease ends, and it is given to the first in the queue as another asks',
    async ({ key }) => {
      const [first, second] = [claimOn(key), claimOn(key)];
      expect(await isAcquired(first, true)).toBe(false);
      await expire(server, key);
      await acquireOn(other, second, placeOf(second.owner));
      return (await holderOn(other, key))?.owner === first.owner;
    },
  ],
  [
    'it is released by force',
    async ({ key }) =>
      other.forceRelease(key).then(
        (taken) => taken !== undefined,
        () => false,
      ),
  ],
  [
    'its row is deleted',
    async ({ key }) => {
      const unlocked =
        'SELECT resource_lock_key FROM resource_lock WHERE resource_lock_key = $1 FOR UPDATE SKIP LOCKED';
      const gone = `DELETE FROM resource_lock WHERE resource_lock_key IN (${unlocked}) RETURNING 1`;
      return (await server.query(gone, [key])).length === 1;
    },
  ],
];

/**
 * The first two messages come from the guard, the third from the database: the transaction reads an older state. All
 * but the first roll it back.
 */
type Outcome = 'held' | 'lost' | '40001';

async function guarded({ text, values }: ReturnType<typeof guardStatement>): Promise<Outcome> {
  try {
    await work.query(text, values);
    return 'held';
  } catch (error) {
    const { code } = error as pg.DatabaseError;
    if (code !== '22P02' && code !== '40001') throw error;
    return code === '40001' ? code : 'lost';
  }
}

const LEVELS: [level: string, ifTaken: Outcome][] = [
  ['READ COMMITTED', 'lost'],
  ['REPEATABLE READ', '40001'],
  ['SERIALIZABLE', '40001'],
];

describe.each(LEVELS)('a transaction at %s', (level, ifTaken) => {
  /** A lock with a lease that nobody extends, and a transaction that has begun to read. */
  async function begun() {
    const lock = await locks.acquire(freshKey(), { watchdog: false, ttlMs: 60_000 });
    const statement = guardStatement(lock); // before it may turn out to be lost
    await work.query(`BEGIN ISOLATION LEVEL ${level}`);
    await work.query('SELECT n FROM account');
    return { lock, statement };
  }

  it.each(TAKEOVERS)(
    'does not count a lock as held when %s before the guard, which comes last [G694]',
    async (_, takeOver) => {
      const { lock, statement } = await begun();
      expect(await takeOver(lock)).toBe(true);
      expect(await guarded(statement)).toBe(ifTaken);
      await work.query('ROLLBACK');
    },
  );

  it.each(TAKEOVERS)(
    'keeps a lock that it guards first, so it cannot be that %s before it ends [G695]',
    async (_, takeOver) => {
      const { lock, statement } = await begun();
      expect(await guarded(statement)).toBe('held');
      expect(await takeOver(lock)).toBe(false);
      expect((await rowOf(server, lock.key))!.holder).toBe(lock.owner);
      await work.query('COMMIT');
      await other.forceRelease(lock.key);
    },
  );

  it('counts a lock as held that was only extended, before the guard and after it [G696]', async () => {
    const { lock, statement } = await begun();
    await lock.extend();
    expect(await guarded(statement)).toBe('held');
    await lock.extend();
    expect(await guarded(statement)).toBe('held');
    await work.query('COMMIT');
    expect(await lock.release()).toBe(true);
  });
});
