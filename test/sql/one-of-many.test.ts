import { type Lock, LockService } from 'nest-redis-lock';
import { guard, SqlLockModule } from 'nest-redis-lock/sql';
import { describe, expect, it } from 'vitest';
import { RecordingLogger, startModules } from '../support/nest-app.js';
import { openSqlLocks } from '../support/open-locks.js';
import { connectTo, locksOn, ownPostgres, postgresOfFile } from './stage.js';

/** Long enough for a busy machine, if nothing should be given up. */
const PATIENT = { commandTimeoutMs: 60_000, waitMs: 60_000 };

const server = await postgresOfFile();

let tables = 0;
const freshTable = () => `locks_${++tables}`;
const keysOf = (name: string, count: number) => Array.from({ length: count }, (_, at) => `${name}${at}`);

/** Takes each key, or returns why not. Something is in flight before, so that the requests travel together. */
async function takeAll(locks: LockService, keys: readonly string[]): Promise<string[]> {
  const [, ...outcomes] = await Promise.all([
    locks.inspect('any'),
    ...keys.map((key) =>
      locks.acquire(key).then(
        () => 'acquired',
        (error: Error) => error.message,
      ),
    ),
  ]);
  return outcomes;
}

describe('Tokens of locks in PostgreSQL', () => {
  it.each([
    ['few digits of floating-point numbers', { options: '-c extra_float_digits=0' }],
    ['answers in binary', { binary: true }],
  ])('grow, and are guarded, where the application has set up %s [G965]', async (_, more) => {
    const table = freshTable();
    const postgres = { connectionString: server.url, ...more };
    const [one, other] = [
      await openSqlLocks({ postgres, table, ...PATIENT }),
      await openSqlLocks({ postgres, table, ...PATIENT }),
    ];
    const client = await connectTo(server);
    const tokens: number[] = [];
    const work = async (lock: Lock) => {
      tokens.push(lock.fencingToken);
    };
    for (let round = 0; round < 10; round++)
      await Promise.all([one, other, one, other].map((locks) => locks.withLock('k', work)));
    expect(tokens).toHaveLength(40);
    for (let at = 1; at < tokens.length; at++) expect(tokens[at]).toBeGreaterThan(tokens[at - 1]!);
    const lock = await one.acquire('k');
    const [row] = await server.query(`SELECT fence::text AS fence FROM ${table} WHERE resource_lock_key = 'k'`);
    expect(String(lock.fencingToken)).toBe(row!.fence);
    expect((await other.inspect('k'))!.fencingToken).toBe(lock.fencingToken);
    await client.query('BEGIN');
    await guard(lock, client);
    await client.query('COMMIT');
    await lock.release();
  });
});

describe('A lock in PostgreSQL whose data cannot be used', () => {
  it('is refused where its token would reach 2^53, and no list and no other lock fails with it, nor with an infinite time [G966]', async () => {
    const table = freshTable();
    const locks = await locksOn(server, { table, ...PATIENT });
    const keys = keysOf('k', 10);
    await takeAll(locks, ['held', 'endless']);
    await takeAll(locks, keys).then(() => Promise.all(keys.map((key) => locks.forceRelease(key))));
    await server.query(`UPDATE ${table} SET fence = 9007199254740991 WHERE resource_lock_key = 'k4'`);
    await server.query(
      `UPDATE ${table} SET expires_at = 'infinity', acquired_at = '-infinity' WHERE resource_lock_key = 'endless'`,
    );
    await server.query(`UPDATE ${table} SET waiters = '{garbage}' WHERE resource_lock_key = 'k5'`);
    const outcomes = await takeAll(locks, keys);
    expect(outcomes[4]).toMatch(/^Lock "k4" could not be acquired: .*out of range.*delete that row/);
    expect(outcomes[5]).toMatch(/^Lock "k5" could not be acquired: /);
    expect(outcomes.filter((outcome) => outcome === 'acquired')).toHaveLength(8);
    expect(await locks.acquire('k4').catch((error: Error) => error.message)).toContain('out of range'); // alone
    await server.query(`UPDATE ${table} SET expires_at = 'infinity' WHERE resource_lock_key = 'k5'`);
    const listed = await locks.list();
    expect(listed.complete).toBe(false); // the lock with garbage in its queue cannot be read
    expect(listed.locks.map(({ key }) => key)).toEqual(
      ['endless', 'held', ...keys.filter((key) => !['k4', 'k5'].includes(key))].sort(),
    );
    expect(listed.locks.find(({ key }) => key === 'endless')).toMatchObject({
      remainingMs: Infinity,
      since: undefined,
    });
  });

  it('fails alone, without other locks of the same request [G967]', async () => {
    await server.query(`CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0`);
    const postgres = server.url.replace(/postgres$/, 'latin');
    const locks = await locksOn({ url: postgres }, PATIENT);
    const admin = await connectTo({ url: postgres });
    await admin.query(`ALTER TABLE resource_lock ADD CHECK (resource_lock_key <> 'forbidden')`);
    const keys = [...keysOf('n', 10), 'ключ', 'forbidden', ...keysOf('m', 10)];
    const outcomes = await takeAll(locks, keys);
    expect(outcomes.filter((outcome) => outcome === 'acquired')).toHaveLength(20);
    expect(outcomes[10]).toMatch(/^Lock "ключ" could not be acquired: .*no equivalent in encoding/);
    expect(outcomes[11]).toMatch(/^Lock "forbidden" could not be acquired: .*violates check constraint/);
    expect(outcomes[11]).toContain('Other keys are not affected.');
  });

  it('is not an outage, and does not hide a later one [G969]', async () => {
    const table = freshTable();
    const log = new RecordingLogger();
    const own = await ownPostgres();
    const imports = [SqlLockModule.forRoot({ postgres: own.url, table, createTable: true, ...PATIENT })];
    const locks = (await startModules({ imports }, log)).get(LockService);
    await own.query(`ALTER TABLE ${table} ADD CHECK (resource_lock_key <> 'forbidden')`);
    await expect(locks.acquire('forbidden')).rejects.toThrow('violates check constraint');
    const client = await connectTo(own);
    const guarded = await locks.acquire('guarded');
    await client.query('BEGIN');
    await guard(guarded, client);
    expect(await guarded.release()).toBe(false);
    expect(log.lines.filter((line) => line.includes('available'))).toEqual([]);
    await client.query('COMMIT');
    await own.query(`ALTER TABLE ${table} RENAME TO elsewhere`);
    await expect(locks.acquire('a')).rejects.toThrow('could not be acquired');
    expect(log.lines.filter((line) => line.includes('Locks are unavailable'))).toHaveLength(1);
    await own.query(`ALTER TABLE elsewhere RENAME TO ${table}`);
  });
});

it('other locks are taken and given back while another session holds the rows of 20 that are asked for, which are granted once it ends [G968]', async () => {
  const table = freshTable();
  const locks = await locksOn(server, { table, ...PATIENT });
  const stuck = keysOf('stuck', 20);
  const kept = await locks.acquire('kept');
  for (const key of stuck) await (await locks.acquire(key)).release();
  const mine = await locks.acquire('mine');
  const session = await connectTo(server);
  await session.query('BEGIN');
  await session.query(`SELECT 1 FROM ${table} WHERE resource_lock_key LIKE 'stuck%' FOR UPDATE`);
  await session.query(`SELECT 1 FROM ${table} WHERE resource_lock_key = 'mine' FOR UPDATE`);
  let settled = 0;
  const settles = () => void settled++;
  const asked = stuck.map((key) => locks.acquire(key));
  const others = [mine.extend(60_000), ...asked];
  for (const each of others) each.then(settles, settles);
  for (let turn = 0; turn < 30; turn++) await (await locks.acquire(`free${turn % 7}`)).release();
  await kept.extend(60_000);
  expect(settled).toBe(0);
  await session.query('COMMIT');
  await Promise.all(others);
  expect(await mine.release()).toBe(true);
  for (const lock of await Promise.all(asked)) expect(await lock.release()).toBe(true);
});
