import { createConnection } from 'mysql2/promise';
import { ddl, type MysqlDiagnosis } from 'nest-redis-lock/sql';
import { beforeAll, describe, expect, it, onTestFinished } from 'vitest';
import { LockOptionsError, LockUnavailableError } from 'nest-redis-lock';
import { composeSqlLocks } from '../../lib/compose/open-sql.js';
import { MysqlNode } from '../../lib/stores/sql/mysql/mysql-node.js';
import type { Row, SqlClient } from '../../lib/stores/sql/sql-client.js';
import { call } from '../cli/call.js';
import type { MariaDbServer } from '../support/mariadb-server.js';
import { openSqlLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { mariaDb, ownMariaDb, PATIENT } from './server.js';

let server: MariaDbServer;
beforeAll(async () => {
  server = await mariaDb();
  await server.query(ddl('mysql'));
  await server.query(`CREATE USER limited IDENTIFIED BY 'right one'`);
  await server.query('GRANT SELECT, INSERT, UPDATE, DELETE ON shop.resource_lock TO limited');
});

const urlOf = (user: string, password = 'right one', path = '/shop') =>
  `mysql://${user}:${encodeURIComponent(password)}@127.0.0.1:${server.port}${path}`;

/** Why an application does not start. */
const refusalOf = (mysql: string, options: object = {}): Promise<LockOptionsError | LockUnavailableError> =>
  composeSqlLocks({ mysql, ...PATIENT, connectTimeoutMs: 60_000, ...options })
    .open()
    .then(
      () => expect.fail('it starts'),
      (error: LockOptionsError | LockUnavailableError) => error,
    );

describe('An application with locks in MariaDB', () => {
  it('whose user may see no other table is told that the table is missing or its rights are, with what creates it [G830]', async () => {
    const error = await refusalOf(urlOf('limited'), { table: 'elsewhere' });
    expect(error).toBeInstanceOf(LockOptionsError);
    expect(error.message).toContain(
      `127.0.0.1:${server.port}/shop has no table \`elsewhere\` for locks, or its user has no rights on it: MySQL tells such a user ` +
        'the same. If it is there, give the user SELECT, INSERT, UPDATE and DELETE on it. If not, create it in a migration, or set ' +
        'createTable: true for tests and first steps: CREATE TABLE IF NOT EXISTS `elsewhere` (',
    );
    const created = await refusalOf(urlOf('limited'), { table: 'elsewhere', createTable: true });
    expect(created.message).toMatch(/cannot be created in .*: CREATE command denied .* CREATE TABLE IF NOT EXISTS/);
    await (await openSqlLocks({ mysql: urlOf('limited'), createTable: false, ...PATIENT })).acquire('key');
    const lazy = await openSqlLocks({
      mysql: urlOf('limited'),
      table: 'elsewhere',
      createTable: false,
      lazyConnect: true,
    });
    const { findings } = await lazy.diagnose<MysqlDiagnosis>();
    expect(findings).toMatchObject([{ severity: 'error', code: 'no-table-or-rights' }]);
    expect(findings[0]!.message).toContain('If it is not there: Create the table with what ddl()');
  });

  it('whose database is not named is refused at once, unless its table names it [G831]', async () => {
    for (const mysql of [urlOf('root', '', ''), urlOf('root', '', '/'), 'mysql://not.there']) {
      const error = await refusalOf(mysql, { lazyConnect: true });
      expect(error).toBeInstanceOf(LockOptionsError);
      expect(error.message).toContain('mysql names no database: write it into the URL, as in mysql://');
    }
    const options = { mysql: urlOf('limited', undefined, ''), table: 'shop.resource_lock', createTable: false };
    const locks = await openSqlLocks({ ...options, ...PATIENT });
    expect(await (await locks.acquire('without a database')).release()).toBe(true);
  });

  it('that asks for TLS is told that the server has none', async () => {
    // It is tried until the time is over, as a server may get TLS when it has started.
    const error = await until(
      async () => {
        const refusal = await refusalOf(`${server.url}?ssl=true`, { connectTimeoutMs: 500 });
        return refusal.message.includes('not connected:') ? refusal : undefined;
      },
      { what: 'the server has answered in time' },
    );
    expect(error).toBeInstanceOf(LockUnavailableError);
    expect(error.message).toMatch(
      /cannot be used: .* not support secure connection\. It has no TLS: set that up there/,
    );
    expect(
      await (await openSqlLocks({ mysql: `${server.url}?ssl=false`, ...PATIENT })).tryAcquire('tls'),
    ).not.toBeNull();
  });

  it.each(['1', 'required', '"Amazon RDS"', '[]', '{"key":"s3cret"', 'null'])(
    'whose URL has ssl=%s is told which values there are, and nothing of it is shown',
    async (ssl) => {
      const error = await refusalOf(`mysql://host/shop?ssl=${encodeURIComponent(ssl)}`);
      expect(error).toBeInstanceOf(LockOptionsError);
      expect(error.message).toContain('must be true, false, Amazon RDS, or an object of options of TLS as JSON');
      expect(error.stack).not.toContain('s3cret');
    },
  );

  it('on a server whose binary log consists of statements is refused, with what to set there [G832]', async () => {
    const own = await ownMariaDb({ 'log-bin': 'log', 'binlog-format': 'STATEMENT' });
    const advice = 'Set binlog_format of the server to ROW or MIXED';
    const error = await refusalOf(own.url, { createTable: true });
    expect(error).toBeInstanceOf(LockOptionsError);
    expect(error.message).toContain(`127.0.0.1:${own.port}/shop: its binary log consists of statements. ${advice}`);
    const lazy = await openSqlLocks({ mysql: own.url, lazyConnect: true });
    const { findings } = await lazy.diagnose<MysqlDiagnosis>();
    expect(findings).toMatchObject([{ severity: 'error', code: 'statement-log' }]);
    expect(findings[0]!.message).toContain(advice);
    await own.query('SET GLOBAL binlog_format = MIXED');
    const locks = await openSqlLocks({ mysql: own.url, ...PATIENT });
    const lock = await locks.acquire('key');
    const session = await createConnection(own.url);
    onTestFinished(() => session.destroy());
    await session.query(`SET SESSION binlog_format = STATEMENT`);
    await session.query('SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED');
    await expect(session.query('UPDATE resource_lock SET is_kept = is_kept + 1')).rejects.toMatchObject({
      code: 'ER_BINLOG_STMT_MODE_AND_ROW_ENGINE', // what advice is given on
    });
    expect(await lock.release()).toBe(true);
  });

  it.each(['ON', '1', 'NO_LOCK', 'OFF', '0', undefined])(
    'takes read_only = %s, as one of the versions says it, for what it means',
    async (value) => {
      const answers: Readonly<Record<string, Row>> = {
        claim_session: { is_claimed: 1 },
        variables: { n: 'read_only', v: value },
      };
      const client: SqlClient = {
        query: async ({ name }) => (answers[name] ? [answers[name]] : []),
        close: () => {},
      };
      const source = { name: 'here', connect: async () => client };
      const settings = { table: '`t`', createTable: false, commandTimeoutMs: 1_000, processName: 'a' };
      const node = new MysqlNode(source, { ...settings, now: () => performance.now() });
      onTestFinished(() => node.close());
      const problem = await node.connection.ready(1_000);
      const isOff = value === undefined || ['OFF', '0'].includes(value);
      expect(problem?.problem).toBe(isOff ? undefined : 'not connected: it only reads');
    },
  );
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
    const answered = (url: string) =>
      until(
        async () => {
          const called = await call(['ls', '--mysql', url], { connectMs: 500 });
          return called.err.includes('not connected:') ? called : undefined;
        },
        { what: 'the server has answered in time' },
      );
    const wrong = await answered(urlOf('limited', 'wr0ng'));
    expect(wrong).toMatchObject({ code: 69, out: '' });
    expect(wrong.err).toMatch(
      /Access denied for user '\*\*\*'.*\. Correct user and password, in the URL or in PGUSER, /,
    );
    const absent = await answered(urlOf('root', '', '/absent'));
    expect(absent).toMatchObject({ code: 69, err: expect.stringContaining('Correct the name of the database.') });
  });
});
