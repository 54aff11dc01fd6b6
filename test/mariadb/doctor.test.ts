import { Test } from '@nestjs/testing';
import { ddl, SqlLockModule } from 'nest-redis-lock/sql';
import { describe, expect, it } from 'vitest';
import { MYSQL } from '../../lib/stores/sql/mysql/mysql-doctor.js';
import { isOff } from '../../lib/stores/sql/mysql/statements.js';
import { findingsOf } from '../../lib/stores/sql/sql-doctor.js';
import { diagnosed as diagnosedBy } from '../sql/stage.js';
import { RecordingLogger } from '../support/nest-app.js';
import { kindOfServer, locksOn, mariaDb, PATIENT } from './server.js';

const server = await mariaDb();
const { store, version, deniedFirst } = await kindOfServer();

let tables = 0;

/**
 * A table for one test.
 * @param change changes the statement that creates it
 */
async function table(change: (statement: string) => string = (statement) => statement): Promise<string> {
  const name = `doctors_${++tables}`;
  await server.query(change(ddl('mysql', { table: name })));
  return name;
}

const diagnosed = async (name: string, url = server.url) =>
  diagnosedBy(await locksOn({ url }, { table: name, createTable: false }));

describe('The doctor of locks in MariaDB', () => {
  it('finds with a table of ddl() only that this server may forget locks, and names server, version, table and rows', async () => {
    const name = await table();
    const { nodes, ...diagnosis } = await diagnosed(name);
    expect(diagnosis).toMatchObject({ backend: 'mysql', where: `in ${store} (127.0.0.1:${server.port}/shop)` });
    expect(diagnosis.findings.map(({ code }) => code)).toEqual(['not-durable']);
    expect(nodes).toEqual([
      {
        name: `127.0.0.1:${server.port}/shop`,
        reachable: true,
        table: `\`${name}\``,
        version,
        rows: expect.any(Number),
        summary: expect.stringMatching(new RegExp(`^${store} .*, table \`doctors_\\d+\` with about \\d rows?$`)),
      },
    ]);
  });

  it.each<[what: string, change: (statement: string) => string, code: string, said: RegExp]>([
    [
      'whose keys are folded by a collation',
      (statement) => statement.replace('varbinary(2048)', 'varchar(500)'),
      'wrong-column',
      /resource_lock_key is varchar\(500\), and should be varbinary\(2048\)/,
    ],
    [
      'whose times end in 2038',
      (statement) =>
        statement.replace(
          /expires_at +datetime\(6\) NOT NULL/,
          "expires_at timestamp(6) NOT NULL DEFAULT '2001-01-01'",
        ),
      'wrong-column',
      /expires_at is timestamp\(6\), and should be datetime\(6\)/,
    ],
    [
      'that has no primary key',
      (statement) => statement.replace('PRIMARY KEY', 'KEY'),
      'no-primary-key',
      /two callers can hold the same lock/,
    ],
    [
      'without transactions',
      (statement) =>
        statement.replace('varbinary(2048)', 'varbinary(900)').replace('ENGINE = InnoDB', 'ENGINE = MyISAM'),
      'wrong-engine',
      /Use ENGINE = InnoDB/,
    ],
  ])('refuses a table %s [G786]', async (_, change, code, said) => {
    const name = await table(change);
    const { findings } = await diagnosed(name);
    const found = findings.find((each) => each.code === code);
    expect(found).toMatchObject({ severity: 'error', message: expect.stringMatching(said) });
    const starting = Test.createTestingModule({
      imports: [SqlLockModule.forRoot({ mysql: server.url, table: name, ...PATIENT })],
    });
    await expect(starting.setLogger(new RecordingLogger()).compile()).rejects.toThrow(said);
  });

  it('leaves it to the first call to name the rights that a user lacks who may read the table and not change it [G982]', async () => {
    const name = await table();
    const url = `mysql://reader@127.0.0.1:${server.port}/shop`;
    await server.query('CREATE USER reader');
    await server.query(`GRANT SELECT, INSERT ON shop.${name} TO reader`);
    expect((await diagnosed(name, url)).findings.map(({ code }) => code)).toEqual(['not-durable']);
    const locks = await locksOn({ url }, { table: name, createTable: false });
    await expect(locks.acquire('key')).rejects.toThrow(
      new RegExp(`${deniedFirst} command denied.*Give its user the rights SELECT, INSERT, UPDATE and DELETE`),
    );
    await server.query(`GRANT UPDATE, DELETE ON shop.${name} TO reader`);
    await locks.withLock('key', () => 'done');
  });

  it('names a server that is too old, one of several primaries, one whose binary log lags behind, and a MySQL that is older than the tested one', () => {
    const good = {
      version: '10.11.18-MariaDB',
      has_key: true,
      engine: 'InnoDB',
      innodb_flush_log_at_trx_commit: '1',
      log_bin: 'OFF',
      sync_binlog: '0',
      wsrep_on: 'OFF',
      columns: [...ddl('mysql').matchAll(/^ {2}([a-z_]+) +([a-z]+(?:\(\d+\))?) NOT NULL/gm)].map(([, name, type]) => [
        name,
        type,
      ]),
    };
    const codesOf = (row: object) =>
      findingsOf(MYSQL, { name: 'here', table: '`t`', ...good, ...row }).map(({ code }) => code);
    expect(codesOf({})).toEqual([]);
    expect(codesOf({ version: '10.5.9-MariaDB' })).toEqual(['too-old']);
    expect(codesOf({ log_bin: 'ON', sync_binlog: '1' })).toEqual([]);
    expect(codesOf({ log_bin: 'ON', sync_binlog: '0' })).toEqual(['not-durable']);
    expect(codesOf({ wsrep_on: 'ON' })).toEqual(['several-primaries']);
    expect(codesOf({ version: '8.0.1' })).toEqual(['not-run']);
    expect(codesOf({ version: '9.6.0' })).toEqual(['not-run']);
    for (const tried of ['9.7.0', '9.7.4-2', '10.1.0']) expect(codesOf({ version: tried })).toEqual([]);
    expect(codesOf({ version: '5.7.44-log' })).toEqual(['too-old', 'not-run']);
    const ofGroup = { group_replication_group_name: 'x', group_replication_single_primary_mode: 'OFF' };
    expect(codesOf({ version: '8.4.0', ...ofGroup })).toEqual(['several-primaries', 'not-run']);
    // The texts of the versions for read_only.
    expect(['OFF', '0', 'ON', '1', 'NO_LOCK'].map(isOff)).toEqual([true, true, false, false, false]);
  });
});
