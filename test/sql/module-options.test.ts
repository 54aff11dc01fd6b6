import { Injectable, type DynamicModule } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { LockOptionsError, LockService } from 'nest-redis-lock';
import { SqlLockModule, type SqlLockModuleOptions, type SqlLockOptionsFactory } from 'nest-redis-lock/sql';
import pg from 'pg';
import { describe, expect, it, onTestFinished } from 'vitest';
import { RecordingLogger } from '../support/nest-app.js';
import { pglite } from './pglite.js';

async function start(registration: DynamicModule): Promise<LockService> {
  const app = await Test.createTestingModule({ imports: [registration] })
    .setLogger(new RecordingLogger())
    .compile();
  onTestFinished(() => app.close());
  await app.init();
  return app.get(LockService);
}

const FORMS: Record<string, (options: SqlLockModuleOptions) => DynamicModule> = {
  forRoot: (options) => SqlLockModule.forRoot(options),
  useFactory: (options) => SqlLockModule.forRootAsync({ useFactory: async () => options }),
  useClass: (options) => {
    @Injectable()
    class Factory implements SqlLockOptionsFactory {
      createSqlLockOptions(): SqlLockModuleOptions {
        return options;
      }
    }
    return SqlLockModule.forRootAsync({ useClass: Factory });
  },
};

const url = 'postgres://localhost/db';
const client = new pg.Client(url);
const OF_REDIS = 'It is an option of RedisLockModule, which keeps locks in Redis.';

const BAD: [options: object | undefined, message: string][] = [
  [{}, 'A database is expected, as postgres or mysql: got none.'],
  [
    { postgres: undefined },
    'A database is expected, as postgres or mysql: got postgres: undefined. Is the variable set?',
  ],
  [{ postgres: '' }, 'got an empty string. Is the variable that it comes from set?'],
  [{ postgres: 5 }, 'postgres must be a URL, options of pg, a Pool of pg, or a PGlite: got 5.'],
  [{ postgres: 'mysql://u:hunter2@a/db' }, 'postgres must be a URL like postgres://user:password@host:5432/database'],
  [{ postgres: client }, 'postgres must not be a connection or a transaction that the application uses itself'],
  [{ postgres: { query: () => {} } }, 'Give the URL, the options, or the Pool: locks have connections of their own.'],
  [{ postgres: url, redis: 'redis://a' }, OF_REDIS],
  [{ postgres: url, redlock: ['redis://a'] }, OF_REDIS],
  [{ postgres: url, memory: true }, 'RedisLockModule.forRoot({ memory: true }) keeps locks in memory.'],
  [{ postgres: url, keyPrefix: 'a' }, 'Locks of another application go into another table'],
  [{ postgres: url, waitForReplicas: { replicas: 1 } }, 'A database waits for its replicas itself'],
  [{ postgres: url, admission: false }, 'It is an option of a Redlock.'],
  [{ url }, "Did you mean postgres: 'postgres://user:password@host:5432/database', or mysql: 'mysql://...'?"],
  [{ connectionString: url }, 'Did you mean postgres: { connectionString: ... }?'],
  [{ pool: {} }, 'Did you mean postgres: pool, or mysql: pool?'],
  [{ host: 'a' }, 'Did you mean postgres: { host: ... }, or mysql: { host: ... }?'],
  [{ password: 'hunter2' }, 'Did you mean postgres: { host: ... }, or mysql: { host: ... }?'],
  [{ postgres: url, schema: 'a' }, "Did you mean table: 'schema.name'?"],
  [{ postgres: url, ttl: 5 }, 'Did you mean ttlMs?'],
  [{ postgres: url, ttlMs: 19 }, 'ttlMs must be a whole number of milliseconds from 20 to 86400000: got 19.'],
  [{ postgres: url, createTable: 'yes' }, 'createTable must be true or false: got "yes".'],
  [{ postgres: url, commandTimeoutMs: 5 }, 'commandTimeoutMs must be a whole number of milliseconds from 10 to 60000'],
  [{ postgres: url, janitor: true }, 'janitor must be false, or an object like { keepMs: 86_400_000 }: got true.'],
  [{ postgres: url, janitor: { keep: 5 } }, 'There is no option "keep": expected keepMs.'],
  [{ postgres: url, janitor: { keepMs: 59_999 } }, 'janitor.keepMs must be a whole number of milliseconds from 60000'],
  ...['', 'a b', 'a"b', 'a.b.c', '.a', 'a.', '1a', 'a;drop', 'a'.repeat(64), 5].map((table): [object, string] => [
    { postgres: url, table },
    'table must be the name of a table, or schema.name, of letters, digits and _: got',
  ]),
];

describe.each(Object.entries(FORMS))('with %s an application does not start', (form, registration) => {
  // The forms share the check: what each of them does with its options is seen by some.
  it.each(form === 'forRoot' ? BAD : BAD.slice(0, 3))('with %o', async (options, message) => {
    const starting = start(registration(options as SqlLockModuleOptions));
    await expect(starting).rejects.toThrow(message);
    await expect(starting).rejects.toBeInstanceOf(LockOptionsError);
    await expect(starting).rejects.not.toThrow('hunter2');
  });
});

it('the options of SqlLockModule are refused where they are not expected, or missing', async () => {
  await expect(start(SqlLockModule as never)).rejects.toThrow('SqlLockModule without forRoot');
  expect(() => SqlLockModule.forRoot(undefined as never)).toThrow(
    'the argument of SqlLockModule.forRoot must be an object with options: got undefined.',
  );
  expect(() => SqlLockModule.forRootAsync({ postgres: url } as never)).toThrow(
    'SqlLockModule.forRootAsync has no option "postgres": expected useFactory',
  );
  const named = { postgres: url, name: 'billing' } as SqlLockModuleOptions;
  await expect(start(SqlLockModule.forRootAsync({ useFactory: () => named }))).rejects.toThrow(
    'name and isGlobal go beside useFactory, not into what it returns.',
  );
});

describe('the table', () => {
  it('a start without the table of the locks fails, and the message has the statement that creates it [G700]', async () => {
    const postgres = await pglite();
    const starting = start(SqlLockModule.forRoot({ postgres, table: 'public.Missing' }));
    await expect(starting).rejects.toBeInstanceOf(LockOptionsError);
    const { message } = (await starting.catch((error: Error) => error)) as Error;
    expect(message).toContain('PGlite has no table "public"."Missing" for locks. Create it in a migration');
    await postgres.exec(message.slice(message.indexOf('CREATE TABLE')));
    const locks = await start(SqlLockModule.forRoot({ postgres, table: 'public.Missing', commandTimeoutMs: 20_000 }));
    expect(await locks.withLock('k', ({ fencingToken }) => fencingToken)).toBeGreaterThan(0);
  });

  it('the table may be in another schema, and be called like a word of SQL: upper and lower case count, everywhere [G701]', async () => {
    const postgres = await pglite();
    await postgres.exec('CREATE SCHEMA IF NOT EXISTS "Select"');
    const settings = { postgres, createTable: true, commandTimeoutMs: 20_000 };
    const [one, other] = [
      await start(SqlLockModule.forRoot({ ...settings, table: 'Select.From' })),
      await start(SqlLockModule.forRoot({ ...settings, table: 'Select.from' })),
    ];
    const lock = await one.acquire('k');
    await (await other.acquire('k')).release(); // another table, so another lock
    const waiting = one.acquire('k');
    await lock.extend(60_000);
    expect((await one.list()).locks.map(({ key }) => key)).toEqual(['k']);
    expect((await one.inspect('k'))?.holder).toBeDefined();
    await lock.release();
    await (await waiting).release();
    const { rows } = await postgres.query(
      `SELECT table_name FROM information_schema.tables WHERE table_schema = 'Select' ORDER BY table_name COLLATE "C"`,
    );
    expect(rows).toEqual([{ table_name: 'From' }, { table_name: 'from' }]);
  });
});
