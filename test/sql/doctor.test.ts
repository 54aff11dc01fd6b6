import { writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { TerminusModule } from '@nestjs/terminus';
import { formatDiagnosis, LockService } from 'nest-redis-lock';
import { ddl, SqlLockModule, type SqlLockModuleOptions } from 'nest-redis-lock/sql';
import { LockHealthIndicator } from 'nest-redis-lock/terminus';
import { describe, expect, it, onTestFinished } from 'vitest';
import { POSTGRES } from '../../lib/stores/sql/postgres/postgres-doctor.js';
import { findingsOf } from '../../lib/stores/sql/sql-doctor.js';
import { commandTimeoutMs, logOfAnswering } from '../doctor/diagnosed.js';
import { startModules } from '../support/nest-app.js';
import { openSqlLocks } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { blockedSessions, connectTo, diagnosed, ownPostgres, postgresOfFile } from './stage.js';

const server = await postgresOfFile({ fsync: 'on' });

let tables = 0;

/**
 * A table for one test.
 * @param change changes the statement that creates it
 */
async function table(change: (statement: string) => string = (statement) => statement): Promise<string> {
  const name = `locks_${++tables}`;
  await server.query(change(ddl('postgres', { table: name })));
  return name;
}

const openLocks = (options: SqlLockModuleOptions): Promise<LockService> =>
  openSqlLocks({ createTable: false, commandTimeoutMs, connectTimeoutMs: 60_000, ...options });

it('says which schema the table is in, and warns of another one of that name in the search_path [G993]', async () => {
  const name = await table();
  const locks = await openLocks({
    postgres: { connectionString: server.url, options: '-c search_path=early,public' },
    table: name,
  });
  const before = await diagnosed(locks);
  expect(before.findings).toEqual([]);
  expect(before.nodes[0]!.summary).toContain(`table "${name}" in schema public`);
  await server.query('CREATE SCHEMA early');
  await server.query(ddl('postgres', { table: `early.${name}` }));
  const { findings, nodes } = await diagnosed(locks);
  expect(findings).toMatchObject([{ severity: 'warning', code: 'several-tables' }]);
  expect(findings[0]!.message).toContain('has its locks in early, and another user could have them in public');
  expect(nodes[0]!.summary).toContain(`table "${name}" in schema early`);
});

it('an application starts as soon as its table can be created, though the first attempts took too long', async () => {
  const name = `locks_${++tables}`;
  const other = await connectTo(server);
  await other.query(`BEGIN; ${ddl('postgres', { table: name })}`);
  const opening = openSqlLocks({
    postgres: server.url,
    table: name,
    commandTimeoutMs: 200,
    connectTimeoutMs: 60_000,
  });
  const waited = new Set<number>();
  const waitedTwice = async () => (await blockedSessions(server)).forEach((pid) => waited.add(pid)) ?? waited.size > 1;
  await until(waitedTwice, { what: 'a second session tries to create it' });
  await other.query('ROLLBACK');
  const locks = await opening;
  await until(() => locks.withLock('k', () => true).catch(() => false), { what: 'the table is used' });
});

/** The log of an application about locks in a table when it starts. */
const logWith = (name: string): Promise<string[]> =>
  logOfAnswering(SqlLockModule.forRoot({ postgres: server.url, table: name, commandTimeoutMs }));

describe('The doctor of locks in PostgreSQL', () => {
  it('the doctor finds nothing wrong with a table of ddl(), and names server, version, table and rows [G720]', async () => {
    const locks = await openLocks({ postgres: server.url, table: await table() });
    const { nodes, ...diagnosis } = await diagnosed(locks);
    const name = `127.0.0.1:${server.port}/postgres`;
    expect(diagnosis).toMatchObject({ backend: 'postgres', where: `in PostgreSQL (${name})`, findings: [] });
    expect(nodes).toEqual([
      {
        name,
        reachable: true,
        table: `"locks_${tables}"`,
        version: expect.stringMatching(/^\d+\.\d+/),
        rows: expect.any(Number),
        deadRows: 0,
        oldestTransactionMs: expect.any(Number),
        summary: expect.stringMatching(
          new RegExp(`^PostgreSQL \\d+\\.\\d+.*, table "locks_${tables}" in schema public with about \\d rows?$`),
        ),
      },
    ]);
  });

  it.each<[what: string, change: (statement: string) => string, code: string, said: RegExp]>([
    [
      'whose keys are folded by a collation',
      (statement) => statement.replace('COLLATE "C"', 'COLLATE folding'),
      'wrong-column',
      /resource_lock_key is text COLLATE "folding", and should be text COLLATE "C"/,
    ],
    [
      'whose keys are cut to a length',
      (statement) => statement.replace('text COLLATE "C"', 'char(40) COLLATE "C"'),
      'wrong-column',
      /resource_lock_key is character\(40\) COLLATE "C", and should be text COLLATE "C"/,
    ],
    [
      'whose times have no zone',
      (statement) => statement.replaceAll('timestamptz', 'timestamp'),
      'wrong-column',
      /expires_at is timestamp without time zone, and should be timestamp with time zone/,
    ],
    [
      'that lacks a column',
      (statement) => statement.replace(/^ {2}is_kept .*$/m, ''),
      'wrong-column',
      /is_kept is missing, and should be boolean/,
    ],
    [
      'without a primary key',
      (statement) => statement.replace('PRIMARY KEY', ''),
      'no-primary-key',
      /two callers can hold the same lock\. Add it/,
    ],
    [
      'whose keys have other indexes only',
      (statement) => {
        const [name] = /"\w+"/.exec(statement)!;
        const indexes = [
          `INDEX ON ${name} (resource_lock_key)`,
          `UNIQUE INDEX ON ${name} (resource_lock_key, fence)`,
          `UNIQUE INDEX ON ${name} (resource_lock_key) WHERE is_kept`,
        ];
        return [statement.replace('PRIMARY KEY', 'NOT NULL'), ...indexes.map((each) => `CREATE ${each}`)].join(';');
      },
      'no-primary-key',
      /two callers can hold the same lock\. Add it/,
    ],
  ])(
    'an application does not start on a table %s, and says what to change [G721]',
    async (_what, change, code, said) => {
      await server.query(
        "CREATE COLLATION IF NOT EXISTS folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
      );
      const name = await table(change);
      const locks = await openLocks({ postgres: server.url, table: name });
      const { findings } = await diagnosed(locks);
      expect(findings).toEqual([
        expect.objectContaining({ severity: 'error', code, message: expect.stringMatching(said) }),
      ]);
      await expect(logWith(name)).rejects.toMatchObject({ name: 'LockOptionsError', message: findings[0]!.message });
    },
  );

  it('the doctor says that there is no table, and how to create one', async () => {
    const locks = await openLocks({ postgres: server.url, table: 'nowhere', lazyConnect: true });
    const { findings } = await diagnosed(locks);
    expect(findings).toMatchObject([{ severity: 'error', code: 'no-table' }]);
    expect(findings[0]!.message).toMatch(
      /it has no table "nowhere"\. Create the table in a migration, with the statement that ddl\(\)/,
    );
  });

  it('the doctor reports a table that a crash empties, and one that nothing cleans up [G722]', async () => {
    const unlogged = await table((statement) => statement.replace('CREATE TABLE', 'CREATE UNLOGGED TABLE'));
    const [crash] = (await diagnosed(await openLocks({ postgres: server.url, table: unlogged }))).findings;
    expect(crash).toMatchObject({
      severity: 'error',
      code: 'not-permanent',
      message: expect.stringContaining('UNLOGGED'),
    });

    const name = await table();
    await server.query(`ALTER TABLE ${name} SET (autovacuum_enabled = off)`);
    expect((await diagnosed(await openLocks({ postgres: server.url, table: name }))).findings).toMatchObject([
      { severity: 'warning', message: expect.stringContaining(`does not vacuum "${name}"`) },
    ]);
  });

  it('the doctor names row level security, and the first call names the rights that its user lacks [G981]', async () => {
    const name = await table();
    await server.query(`CREATE ROLE tenant LOGIN; GRANT SELECT, INSERT ON ${name} TO tenant`);
    const locks = await openLocks({ postgres: server.url.replace('postgres@', 'tenant@'), table: name });
    const found = async () => (await diagnosed(locks)).findings.map(({ severity, code }) => `${severity} ${code}`);
    const refusal = () => locks.acquire('key').then(String, String);
    expect(await found()).toEqual([]);
    expect(await refusal()).toContain('Give its user the rights SELECT, INSERT, UPDATE and DELETE on the table.');
    await server.query(`GRANT UPDATE, DELETE ON ${name} TO tenant`);
    await locks.withLock('key', () => 'done');

    await server.query(`ALTER TABLE ${name} ENABLE ROW LEVEL SECURITY`);
    expect(await found()).toEqual(['error row-security']);
    expect((await diagnosed(locks)).findings[0]!.message).toMatch(
      /has row level security on "locks_\d+": .*DISABLE ROW/,
    );
    expect(await refusal()).toContain('Row level security of the table must not apply');
    await server.query(`ALTER TABLE ${name} DISABLE ROW LEVEL SECURITY`);
    expect(await found()).toEqual([]);
  });

  it('the doctor sees the age of the oldest transaction, and warns when it is ten minutes [G770]', async () => {
    const name = await table();
    await server.query(`BEGIN; SELECT txid_current()`);
    onTestFinished(async () => void (await server.query('ROLLBACK')));
    const locks = await openLocks({ postgres: server.url, table: name });
    const age = async () => (await diagnosed(locks)).nodes[0]!.oldestTransactionMs!;
    const first = await age();
    expect(await until(async () => (await age()) > first + 20, { what: 'it is older' })).toBe(true);
    const row = { version: '15.18', major: 15, columns: '{}', has_key: 1, persistence: 'p' };
    const codes = (change: object) =>
      findingsOf(POSTGRES, { name: 'db', table: 'locks', ...row, ...change }).map(({ code }) => code);
    expect(codes({ oldest: 599_000 })).toEqual(['wrong-column']);
    expect(codes({ oldest: 601_000 })).toEqual(['wrong-column', 'old-transaction']);
    expect(codes({ version: '11.22', major: 11 })).toEqual(['too-old', 'wrong-column']);
    expect(codes({ synchronous_commit: 'off' })).toEqual(['wrong-column', 'not-durable']);
  });

  it('the doctor, a ping and a health check say once what is wrong with a database that is down or read-only, without its password [G724]', async () => {
    const broken = await ownPostgres();
    await broken.query(ddl('postgres'));
    const options = { postgres: broken.url.replace('postgres@', 'postgres:s3cret@'), shutdownTimeoutMs: 0 };
    const application = await startModules({
      imports: [SqlLockModule.forRoot(options), TerminusModule.forRoot({ logger: false })],
      providers: [LockHealthIndicator],
    });
    const [locks, health] = [application.get(LockService), application.get(LockHealthIndicator)];
    expect((await diagnosed(locks)).findings).toMatchObject([{ severity: 'warning', code: 'not-durable' }]);
    expect(await locks.ping()).toMatchObject({ available: true, nodes: { voting: 1, of: 1 }, problems: [] });
    expect(await health.pingCheck('locks')).toMatchObject({ locks: { status: 'up' } });

    const [{ data_directory: folder }] = (await broken.query('SHOW data_directory')) as [{ data_directory: string }];
    await broken.kill();
    const down = await until(
      async () => {
        const { findings } = await locks.diagnose();
        return findings[0]?.message.includes('ECONNREFUSED') && findings;
      },
      { what: 'the doctor sees that it is down' },
    );
    expect(down).toMatchObject([{ severity: 'error', code: 'unreachable' }]);
    const ping = await locks.ping();
    expect(ping).toMatchObject({ available: false, nodes: { voting: 0, of: 1 }, problems: { length: 1 } });
    expect((await locks.ping()).problems[0]).toBe(ping.problems[0]);
    expect(await health.pingCheck('locks')).toMatchObject({ locks: { status: 'down' } });

    await writeFile(join(folder, 'standby.signal'), '');
    await broken.restart();
    const reading = await until(
      async () => {
        const diagnosis = await locks.diagnose();
        return diagnosis.findings[0]?.code === 'read-only' ? diagnosis : undefined;
      },
      { what: 'the doctor sees that it only reads' },
    );
    expect(reading.findings).toMatchObject([
      { severity: 'error', message: expect.stringContaining('leads to the primary') },
    ]);
    expect((await locks.ping()).available).toBe(false);
    const said = formatDiagnosis(reading) + JSON.stringify([reading, down, ping, await health.pingCheck('locks')]);
    expect(said).not.toContain('s3cret');
  });
});
