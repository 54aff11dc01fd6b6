import { Injectable } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { createPool } from 'mysql2';
import { createPool as createPromisePool } from 'mysql2/promise';
import { LockContendedError, Locked, LockOptionsError, LockService } from 'nest-redis-lock';
import { ddl, SqlLockModule, type MysqlSource } from 'nest-redis-lock/sql';
import { describe, expect, it, onTestFinished } from 'vitest';
import { composeSqlLocks } from '../../lib/compose/open-sql.js';
import { Janitor } from '../../lib/stores/sql/janitor.js';
import { MysqlNode } from '../../lib/stores/sql/mysql/mysql-node.js';
import { openMysql } from '../../lib/stores/sql/mysql/mysql-source.js';
import { call } from '../cli/call.js';
import { freshKey } from '../support/claims.js';
import { openSqlLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { mariaDb, openAnother, PATIENT } from './server.js';

describe('Locks in MariaDB', () => {
  it('exclude other processes, are waited for, and have tokens that grow [G771]', async () => {
    const services = await Promise.all(Array.from({ length: 4 }, () => openAnother()));
    const key = freshKey();
    let [inside, count] = [0, 0];
    const tokens: number[] = [];
    const work = async (service: LockService): Promise<void> => {
      await service.withLock(key, { waitMs: 120_000 }, async ({ fencingToken }) => {
        expect(++inside).toBe(1);
        tokens.push(fencingToken!);
        await Promise.resolve();
        inside--;
        count++;
      });
    };
    await Promise.all(services.flatMap((service) => Array.from({ length: 10 }, () => work(service))));
    expect(count).toBe(40);
    expect(tokens).toEqual([...new Set(tokens)].sort((a, b) => a - b));
  });

  it('are kept apart for keys that differ in case, in accents, or in spaces at the end, or that are numbers [G772]', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const stem = freshKey();
    const keys = ['order', 'ORDER', 'order ', 'ördér', 'ß', 'ss', '😀', '😁', '0', 'a\0b', '\\', "'", '%', '?'];
    const locks = await a.acquireAll(keys.map((key) => `${stem}${key}`));
    expect(locks.keys).toHaveLength(keys.length);
    for (const key of locks.keys) expect(await b.tryAcquire(key)).toBeNull();
    const { locks: listed } = await b.list({ match: `${stem}*` });
    expect(listed.map(({ key }) => key).sort()).toEqual([...locks.keys].sort());
    expect(await locks.release()).toBe(true);
    expect((await b.list({ match: `${stem}*` })).locks).toEqual([]);
  });

  it('are detached, and adopted by one of all calls that try, with a larger token', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const key = freshKey();
    for (let round = 0; round < 20; round++) {
      const lock = await a.acquire(key);
      const parcel = await lock.detach({ ttlMs: 600_000 });
      expect(await b.inspect(key)).toMatchObject({ holder: { detached: true }, fencingToken: lock.fencingToken });
      await b.extend(parcel, { ttlMs: 60_000 });
      const outcomes = await Promise.allSettled([a, b, a, b].map((service) => service.adopt(parcel)));
      const winners = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
      expect(winners).toHaveLength(1);
      expect(winners[0]!.fencingToken).toBeGreaterThan(lock.fencingToken);
      expect(await a.release(parcel)).toBe(false);
      expect(await winners[0]!.release()).toBe(true);
      await expect(b.adopt(parcel)).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
    }
    const parcel = await (await a.acquire(key)).detach({ ttlMs: 600_000 });
    expect(await b.release(parcel)).toBe(true);
    expect(await b.isLocked(key)).toBe(false);
  });

  it('can be inspected, extended, kept after the work, and taken by force', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const key = freshKey();
    const lock = await a.acquire(key, { watchdog: false });
    expect(await b.inspect(key)).toMatchObject({ fencingToken: lock.fencingToken });
    await lock.extend(60_000);
    expect((await b.inspect(key))!.remainingMs).toBeGreaterThan(30_000);
    expect(await b.forceRelease(key)).toBe(true);
    expect(await b.forceRelease(key)).toBe(false);
    expect(await lock.release()).toBe(false);
    await a.withLock(key, { holdMs: 60_000 }, async () => {});
    expect(await b.inspect(key)).toMatchObject({ keptUntil: expect.any(Date) });
    expect(await b.tryAcquire(key)).toBeNull();
    expect(await b.forceRelease(key)).toBe(true);
    expect(await (await b.tryAcquire(key))!.release()).toBe(true);
  });

  it("show how many calls wait in their holder's process, as of their last extension", async () => {
    const [holding, other] = [await openAnother(), await openAnother()];
    const key = freshKey();
    const shows = (calls?: number) =>
      until(async () => (await other.inspect(key))!.holders[0]!.waiters === calls, { what: `it shows ${calls} calls` });
    const lock = await holding.acquire(key, { ttlMs: 900 });
    const giveUp = new AbortController();
    const next = holding.acquire(key, { waitMs: 600_000 });
    const gone = holding.acquire(key, { waitMs: 600_000, signal: giveUp.signal });
    await shows(2);
    giveUp.abort();
    await expect(gone).rejects.toBe(giveUp.signal.reason);
    await shows(1);
    await lock.release();
    await (await next).release();
    const theirs = await other.acquire(key);
    expect((await holding.inspect(key))!.holders).toMatchObject([{ waiters: undefined }]);
    await theirs.release();
  });

  it('are not said to have nobody else waiting, which is not known, by the service or by the command line [G834]', async () => {
    const [holder, other] = [await openAnother(), await openAnother()];
    const key = freshKey();
    const lock = await holder.acquire(key);
    const waiting = other.acquire(key, { waitMs: 60_000 });
    const shown = (await other.inspect(key))!;
    expect(shown).toMatchObject({ waiters: 1, waitingProcesses: undefined });
    expect((await other.list({ match: key })).locks).toMatchObject([{ waiters: 1, waitingProcesses: undefined }]);
    const on = ['--mysql', (await mariaDb()).url];
    const text = await call(['inspect', key, ...on]);
    expect(text).toMatchObject({ code: 0, out: expect.stringMatching(/^ {2}token +\d+\n$/m) });
    expect(text.out).not.toContain('waiting');
    expect(JSON.parse((await call(['inspect', key, '--json', ...on])).out)).toEqual({
      ...JSON.parse(JSON.stringify({ ...shown, waiters: undefined })),
      holders: [expect.objectContaining({ digest: shown.digest })],
      remainingMs: expect.any(Number),
      since: expect.any(String),
    });
    expect((await call(['ls', key, ...on])).out).toMatch(/\tunknown\texclusive\t1\tunknown\n$/);
    await lock.release();
    await (await waiting).release();
  });

  it('are had by @Locked on the method of a service', async () => {
    @Injectable()
    class Orders {
      @Locked('order:{0}', { waitMs: 0 })
      async pay(_id: string, meanwhile: () => Promise<unknown>): Promise<unknown> {
        return meanwhile();
      }
    }
    const module = SqlLockModule.forRoot({
      mysql: (await mariaDb()).url,
      table: 'of_a_module',
      createTable: true,
      ...PATIENT,
    });
    const testing = await Test.createTestingModule({ imports: [module], providers: [Orders] }).compile();
    await testing.init();
    onTestFinished(() => testing.close());
    const orders = testing.get(Orders);
    const another = await openAnother({ table: 'of_a_module' });
    await orders.pay('1', async () => {
      await expect(another.acquire('order:1', { waitMs: 0 })).rejects.toBeInstanceOf(LockContendedError);
    });
    expect(await (await another.acquire('order:1', { waitMs: 0 })).release()).toBe(true);
  });

  it('are had by a pool of the application, whose connections stay its own', async () => {
    const { url } = await mariaDb();
    const [pool, promises] = [createPool(url), createPromisePool(url)];
    onTestFinished(() => pool.end());
    onTestFinished(() => promises.end());
    for (const mysql of [pool, promises] as unknown as MysqlSource[]) {
      const locks = await openSqlLocks({ mysql, ...PATIENT });
      expect(await (await locks.acquire(freshKey())).release()).toBe(true);
    }
  });

  it('are refused where there is no table, with what creates it [G773]', async () => {
    const { url, port } = await mariaDb();
    const opening = composeSqlLocks({ mysql: url, table: 'not_there', ...PATIENT }).open();
    await expect(opening).rejects.toThrow(LockOptionsError);
    await expect(composeSqlLocks({ mysql: url, table: 'not_there', ...PATIENT }).open()).rejects.toThrow(
      `127.0.0.1:${port}/shop has no table \`not_there\` for locks. Create it in a migration, or set createTable: true for ` +
        'tests and first steps: CREATE TABLE IF NOT EXISTS `not_there` ( resource_lock_key varbinary(2048) NOT NULL,',
    );
    await (await mariaDb()).query(ddl('mysql', { table: 'not_there' }));
    expect(await (await openAnother({ table: 'not_there' })).tryAcquire('key')).not.toBeNull();
  });

  it('can be had in a table that eight processes create at once [G795]', async () => {
    const services = await Promise.all(Array.from({ length: 8 }, () => openAnother({ table: 'created_at_once' })));
    for (const service of services) expect(await (await service.acquire('key')).release()).toBe(true);
  });

  it('leave no rows behind that nobody has used for long, and keep those that are held [G774]', async () => {
    const { url } = await mariaDb();
    const locks = await openAnother({ table: 'swept' });
    const held = await locks.acquire('held');
    await Promise.all(Array.from({ length: 250 }, async (_, at) => (await locks.acquire(`free-${at}`)).release()));
    const server = await mariaDb();
    // The clock was set back.
    await locks.withLock('ahead', () => {});
    await server.query(`UPDATE swept SET fence = 4000000000000000 WHERE resource_lock_key = 'ahead'`);
    await server.query(`INSERT INTO swept VALUES (X'FF', 'somebody else', 1, 0, 0, NOW(), NOW(), '2999-01-01')`); // it is no UTF-8
    const settings = { table: '`swept`', createTable: false, processName: 'host/1/test', now: () => performance.now() };
    const node = new MysqlNode(await openMysql(url, 30_000), { ...settings, commandTimeoutMs: 30_000 });
    onTestFinished(() => node.close());
    expect(await node.connection.ready(30_000)).toBeUndefined();
    const sweep = (behind: string) => node.sweep(behind, 1);
    const janitor = new Janitor(async () => true, sweep);
    onTestFinished(() => janitor.close());
    await until(() => janitor.run(), { what: 'the table was looked through' });
    const rows = await server.query('SELECT HEX(resource_lock_key) AS name FROM swept ORDER BY name DESC');
    const hex = (key: string) => Buffer.from(key).toString('hex').toUpperCase();
    expect(rows.map(({ name }) => name)).toEqual(['FF', hex('held'), hex('ahead')]);
    expect(await held.release()).toBe(true);
    expect((await locks.acquire('ahead')).fencingToken).toBe(4_000_000_000_000_001);
  });

  it('are taken in a table whose columns have no defaults', async () => {
    const locks = await openAnother({ table: 'bare' });
    await (await mariaDb()).query('ALTER TABLE bare ALTER calls_behind DROP DEFAULT');
    const lock = await locks.acquire(freshKey());
    await lock.extend();
    expect(await lock.release()).toBe(true);
  });
});

describe('SqlLockModule', () => {
  it.each([
    [{ mysql: undefined }, 'A database is expected, as postgres or mysql: got mysql: undefined. Is the variable set?'],
    [
      { mysql: 'postgres://host/shop' },
      'mysql must be a URL like mysql://user:password@host:3306/database: got another text.',
    ],
    [{ mysql: 7 }, 'mysql must be a URL, options of mysql2, or a pool of mysql2'],
    [
      { mysql: { query: () => {} } },
      'mysql must not be a connection or a transaction that the application uses itself',
    ],
    [
      { mysql: 'mysql://host/shop', postgres: 'postgres://host/shop' },
      'One database is expected: got postgres and mysql.',
    ],
    [
      { mysql: 'mysql://host/shop', fair: true },
      'fair needs a queue in the database, and MySQL and MariaDB tell nobody',
    ],
    [{ mariadb: 'mysql://host/shop' }, 'Did you mean mysql? MariaDB is one.'],
  ])('refuses %j with a sentence [G775]', (options, sentence) => {
    expect(() => composeSqlLocks(options as never)).toThrow(LockOptionsError);
    expect(() => composeSqlLocks(options as never)).toThrow(sentence);
  });

  it('does not offer an option that MySQL refuses', () => {
    const options = { mysql: 'mysql://host/shop', ttl: 5, nonsense: 1 } as never;
    expect(() => composeSqlLocks(options)).toThrow(/expected (?!.*\bfair).*ttlMs.*Did you mean ttlMs/);
    const ofPostgres = { postgres: 'postgres://host/shop', nonsense: 1 } as never;
    expect(() => composeSqlLocks(ofPostgres)).toThrow(/expected .*\bfair\b/);
  });

  it('never shows a password of its database', async () => {
    const mysql = 'mysql://root:se%20cret@127.0.0.1:1/shop';
    const opening = composeSqlLocks({ mysql, connectTimeoutMs: 100 }).open();
    const error: unknown = await opening.catch((reason: unknown) => reason);
    expect(String(error)).toContain('127.0.0.1:1/shop');
    expect(JSON.stringify([error, String(error), (error as Error).stack])).not.toContain('se cret');
    expect(() => composeSqlLocks({ mysql: 'mysql://root:se%cret@host:port' })).not.toThrow();
    await expect(composeSqlLocks({ mysql: 'mysql://root:se%cret@host:port' }).open()).rejects.toThrow(
      'The URL of the database cannot be read.',
    );
  });
});
