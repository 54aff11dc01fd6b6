import { LockOptionsError, LockUnavailableError } from 'nest-redis-lock';
import { ddl, type MysqlConfig, type MysqlDiagnosis, type MysqlSource } from 'nest-redis-lock/sql';
import { describe, expect, it } from 'vitest';
import { call } from '../cli/call.js';
import { certificatesFor } from '../support/certificates.js';
import { openSqlLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { connectTo, kindOfServer, locksOn, mariaDb, ownMariaDb, PATIENT } from './server.js';

const server = await mariaDb();
await server.query(ddl('mysql'));
await server.query(`CREATE USER limited IDENTIFIED BY 'right one'`);
await server.query('GRANT SELECT, INSERT, UPDATE, DELETE ON shop.resource_lock TO limited');

const urlOf = (user: string, password = 'right one', path = '/shop') =>
  `mysql://${user}:${encodeURIComponent(password)}@127.0.0.1:${server.port}${path}`;

/** The reason why an application does not start. */
const refusalOf = (mysql: MysqlSource, options: object = {}): Promise<LockOptionsError | LockUnavailableError> =>
  openSqlLocks({ mysql, createTable: false, ...PATIENT, connectTimeoutMs: 60_000, ...options }).then(
    () => expect.fail('it starts'),
    (error: LockOptionsError | LockUnavailableError) => error,
  );

/** The answer of a server once it answers within the time limit of a connection. */
const answered = <T>(ask: () => Promise<T>, textOf: (answer: T) => string): Promise<T> =>
  until(
    async () => {
      const answer = await ask();
      return textOf(answer).includes('not connected:') ? answer : undefined;
    },
    { what: 'the server has answered in time' },
  ) as Promise<T>;

async function serverFor(host: string): Promise<{ options: MysqlConfig; ca: string }> {
  const { ca, caFile, certFile, keyFile } = certificatesFor(host);
  const own = await ownMariaDb({ 'ssl-ca': caFile, 'ssl-cert': certFile, 'ssl-key': keyFile });
  return { ca, options: { host: 'localhost', port: own.port, user: 'root', database: 'shop' } };
}

describe('An application with locks in MariaDB', () => {
  it('whose user may see no other table is told that the table or its rights are missing, with the statement that creates the table [G830]', async () => {
    const error = await refusalOf(urlOf('limited'), { table: 'elsewhere' });
    expect(error).toBeInstanceOf(LockOptionsError);
    expect(error.message).toContain(
      `127.0.0.1:${server.port}/shop has no table \`elsewhere\` for locks, or its user has no rights on it: MySQL gives such a user ` +
        'the same error. If it is there, give the user SELECT, INSERT, UPDATE and DELETE on it. If not, create it in a migration, or set ' +
        'createTable: true for tests and first steps: CREATE TABLE IF NOT EXISTS `elsewhere` (',
    );
    const created = await refusalOf(urlOf('limited'), { table: 'elsewhere', createTable: true });
    expect(created.message).toMatch(/cannot be created in .*: CREATE command denied .* CREATE TABLE IF NOT EXISTS/);
    const limited = { url: urlOf('limited') };
    await (await locksOn(limited, { createTable: false })).acquire('key');
    const lazy = await locksOn(limited, { table: 'elsewhere', createTable: false, lazyConnect: true });
    const { findings } = await lazy.diagnose<MysqlDiagnosis>();
    expect(findings).toMatchObject([{ severity: 'error', code: 'no-table-or-rights' }]);
    expect(findings[0]!.message).toContain(
      'If the table does not exist: Create the table in a migration, with the statement that ddl()',
    );
  });

  it('whose database is not named is refused at once, unless its table names it [G831]', async () => {
    for (const mysql of [urlOf('root', '', ''), urlOf('root', '', '/'), 'mysql://not.there']) {
      const error = await refusalOf(mysql, { lazyConnect: true });
      expect(error).toBeInstanceOf(LockOptionsError);
      expect(error.message).toContain('mysql names no database: write it into the URL, as in mysql://');
    }
    const unnamed = { url: urlOf('limited', undefined, '') };
    const locks = await locksOn(unnamed, { table: 'shop.resource_lock', createTable: false });
    expect(await (await locks.acquire('without a database')).release()).toBe(true);
  });

  it('that asks for TLS is told that the server has none', async () => {
    const { url } = await ownMariaDb((await kindOfServer()).withoutTls);
    // The library tries until the time has passed, because a server may get TLS after its start.
    const ask = () => refusalOf(`${url}?ssl=true`, { connectTimeoutMs: 500 });
    const error = await answered(ask, ({ message }) => message);
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(error.message).toMatch(
      /cannot be used: .* not support secure connection\. The server has no TLS: set it up there, or remove TLS/,
    );
    expect(await (await locksOn({ url: `${url}?ssl=false` })).tryAcquire('tls')).not.toBeNull();
  });

  it('uses a server by TLS whose trusted certificate names its host', async () => {
    const { ca, options } = await serverFor('localhost');
    const locks = await openSqlLocks({ mysql: { ...options, ssl: { ca } }, ...PATIENT });
    expect(await locks.tryAcquire('key')).not.toBeNull();
  });

  it('does not use a server whose trusted certificate names another host, unless the options say not to compare names [G987]', async () => {
    const { ca, options } = await serverFor('elsewhere.example');
    const error = await refusalOf({ ...options, ssl: { ca } }, { connectTimeoutMs: 1_000 });
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(error.message).toContain('does not match certificate');
    expect(error.message).toContain('verifyIdentity: false');
    const trusting = { ...options, ssl: { ca, verifyIdentity: false } };
    expect(await (await openSqlLocks({ mysql: trusting, ...PATIENT })).tryAcquire('key')).not.toBeNull();
  });

  it('on a server whose binlog_format is STATEMENT is refused, with what to set there [G832]', async () => {
    const own = await ownMariaDb({ 'log-bin': 'log', 'binlog-format': 'STATEMENT' });
    const advice = 'Set binlog_format of the server to ROW or MIXED';
    const error = await refusalOf(own.url, { createTable: true });
    expect(error).toBeInstanceOf(LockOptionsError);
    expect(error.message).toContain(`127.0.0.1:${own.port}/shop: its binlog_format is STATEMENT. ${advice}`);
    const lazy = await locksOn(own, { lazyConnect: true });
    const { findings } = await lazy.diagnose<MysqlDiagnosis>();
    expect(findings).toMatchObject([{ severity: 'error', code: 'statement-log' }]);
    expect(findings[0]!.message).toContain(advice);
    await own.query('SET GLOBAL binlog_format = MIXED');
    const locks = await locksOn(own);
    const lock = await locks.acquire('key');
    const session = await connectTo(own);
    await session.query(`SET SESSION binlog_format = STATEMENT`);
    await session.query('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED');
    await expect(session.query('UPDATE resource_lock SET is_kept = is_kept + 1')).rejects.toMatchObject({
      code: 'ER_BINLOG_STMT_MODE_AND_ROW_ENGINE', // what advice is given on
    });
    expect(await lock.release()).toBe(true);
  });
});

describe('The command line on a table of MariaDB', () => {
  it('says how to create a table that is missing, or may be [G833]', async () => {
    const missing = await call(['ls', '--mysql', server.url, '--table', 'not_here']);
    expect(missing).toMatchObject({ code: 64, out: '' });
    expect(missing.err).toContain(
      'has no table `not_here` for locks. Create it with what `npx nest-redis-lock ddl mysql --table not_here` prints: CREATE TABLE',
    );
    const hidden = await call(['ls', '--mysql', urlOf('limited'), '--table', 'not_here']);
    expect(hidden).toMatchObject({ code: 64, out: '' });
    expect(hidden.err).toMatch(
      /or its user has no rights on it: .* If not, create it with what `npx nest-redis-lock ddl mysql --table not_here` prints: CREATE TABLE/,
    );
    expect(missing.err + hidden.err).not.toContain('createTable');
  });

  it('says what to do about a wrong password, and about a database that is not there', async () => {
    const calls = (url: string) =>
      answered(
        () => call(['ls', '--mysql', url], { connectMs: 500 }),
        ({ err }) => err,
      );
    const wrong = await calls(urlOf('limited', 'wr0ng'));
    expect(wrong).toMatchObject({ code: 69, out: '' });
    expect(wrong.err).toMatch(
      /Access denied for user '\*\*\*'.*\. Correct the user name and the password, in the URL or in PGUSER, /,
    );
    const absent = await calls(urlOf('root', '', '/absent'));
    expect(absent).toMatchObject({ code: 69, err: expect.stringContaining('Correct the name of the database.') });
  });
});
