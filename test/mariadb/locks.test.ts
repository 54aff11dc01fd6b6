import { createPool } from 'mysql2';
import { createPool as createPromisePool } from 'mysql2/promise';
import { LockOptionsError, type LockService } from 'nest-redis-lock';
import { ddl, type MysqlSource } from 'nest-redis-lock/sql';
import { describe, expect, it, onTestFinished } from 'vitest';
import { Janitor } from '../../lib/stores/sql/janitor.js';
import { call } from '../cli/call.js';
import { describeContract } from '../contract/describe-contract.js';
import { connectedSql, freshKey } from '../support/claims.js';
import { until } from '../support/until.js';
import { mariaDb, openAnother, PATIENT, sweeper } from './server.js';

const server = await mariaDb();

describeContract('a table of a MariaDB', async () => ({
  backend: await connectedSql({ mysql: (await mariaDb()).url, table: 'of_the_contract', ...PATIENT }),
}));

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

  it('show the note of who holds them, and who has their parcel', async () => {
    const [a, b] = [await openAnother(), await openAnother()];
    const [key, note] = [freshKey(), '界'.repeat(100)];
    const lock = await a.acquire(key, { note });
    expect((await b.inspect(key))?.holder).toMatchObject({ pid: process.pid, note });
    await lock.detach({ ttlMs: 60_000 });
    expect((await b.inspect(key))?.holder).toMatchObject({ detached: true, note });
  });

  it('are not shown as if nobody else waited, which is unknown, by the service or by the command line [G834]', async () => {
    const [holder, other] = [await openAnother(), await openAnother()];
    const key = freshKey();
    const lock = await holder.acquire(key);
    const waiting = other.acquire(key, { waitMs: 60_000 });
    const shown = (await other.inspect(key))!;
    expect(shown).toMatchObject({ waiters: 1, waitingProcesses: undefined });
    expect((await other.list({ match: key })).locks).toMatchObject([{ waiters: 1, waitingProcesses: undefined }]);
    const on = ['--mysql', server.url];
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

  it('can be acquired with a pool of the application, whose connections are not used, also in a table whose columns have no defaults', async () => {
    const [pool, promises] = [createPool(server.url), createPromisePool(server.url)];
    onTestFinished(() => pool.end());
    onTestFinished(() => promises.end());
    await server.query(ddl('mysql', { table: 'bare' }));
    await server.query('ALTER TABLE bare ALTER calls_behind DROP DEFAULT');
    for (const mysql of [pool, promises] as unknown as MysqlSource[]) {
      const lock = await (await openAnother({ mysql, table: 'bare' })).acquire(freshKey());
      await lock.extend();
      expect(await lock.release()).toBe(true);
    }
  });

  it('are refused where the table is missing, with the statement that creates it [G773]', async () => {
    const opening = openAnother({ table: 'not_there', createTable: false });
    await expect(opening).rejects.toThrow(LockOptionsError);
    await expect(opening).rejects.toThrow(
      `127.0.0.1:${server.port}/shop has no table \`not_there\` for locks. Create it in a migration, or set createTable: true for ` +
        'tests and first steps: CREATE TABLE IF NOT EXISTS `not_there` ( resource_lock_key varbinary(2048) NOT NULL,',
    );
    await server.query(ddl('mysql', { table: 'not_there' }));
    expect(await (await openAnother({ table: 'not_there' })).tryAcquire('key')).not.toBeNull();
  });

  it('can be acquired in a table that eight processes create at once [G795]', async () => {
    const services = await Promise.all(Array.from({ length: 8 }, () => openAnother({ table: 'created_at_once' })));
    for (const service of services) expect(await (await service.acquire('key')).release()).toBe(true);
  });

  it('leave behind no rows that have long been unused, and keep the rows of held locks [G774]', async () => {
    const locks = await openAnother({ table: 'swept' });
    const held = await locks.acquire('held');
    await Promise.all(Array.from({ length: 250 }, async (_, at) => (await locks.acquire(`free-${at}`)).release()));
    // The clock was set back.
    await locks.withLock('ahead', () => {});
    await server.query(`UPDATE swept SET fence = 4000000000000000 WHERE resource_lock_key = 'ahead'`);
    await server.query(`INSERT INTO swept VALUES (X'FF', 'somebody else', 1, 0, 0, NOW(), NOW(), '2999-01-01')`); // it is not UTF-8
    const sweep = await sweeper(server, { table: '`swept`', keepMs: 1 });
    const janitor = new Janitor(async () => true, sweep);
    onTestFinished(() => janitor.close());
    await until(() => janitor.run(), { what: 'the table was looked through' });
    const rows = await server.query('SELECT HEX(resource_lock_key) AS name FROM swept ORDER BY name DESC');
    const hex = (key: string) => Buffer.from(key).toString('hex').toUpperCase();
    expect(rows.map(({ name }) => name)).toEqual(['FF', hex('held'), hex('ahead')]);
    expect(await held.release()).toBe(true);
    expect((await locks.acquire('ahead')).fencingToken).toBe(4_000_000_000_000_001);
  });
});
