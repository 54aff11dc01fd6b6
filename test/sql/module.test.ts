import { PGlite } from '@electric-sql/pglite';
import { Injectable, Scope, type DynamicModule } from '@nestjs/common';
import type { TestingModule } from '@nestjs/testing';
import { getLockServiceToken, Limited, Locked, LockOptionsError, LockService, RedisLockModule } from 'nest-redis-lock';
import { ddl, guard, SqlLockModule, type SqlLockModuleOptions, type SqlLockOptionsFactory } from 'nest-redis-lock/sql';
import pg from 'pg';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { resolveOptions } from '../../lib/compose/composition.js';
import { SQL } from '../../lib/compose/sql-lock-options.js';
import { exampleWith } from '../readme/compile.js';
import { freshKey } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { startModules } from '../support/nest-app.js';
import { openSqlLocks } from '../support/open-locks.js';
import { preparedPGlite } from '../support/prepared-pglite.js';
import { until } from '../support/until.js';
import { diagnosed, PATIENT, postgresOfFile } from './stage.js';

const pglite = await preparedPGlite();
let tables = 0;

/** Options for locks in a new table of it, patient enough for a busy machine. */
const onPGlite = () => ({ postgres: pglite, table: `locks_${++tables}`, createTable: true, commandTimeoutMs: 20_000 });

@Injectable()
class Jobs {
  readonly gate = new Gate();
  isRunning = false;

  @Locked('job')
  async run(): Promise<string> {
    this.isRunning = true;
    await this.gate.opened;
    return 'done';
  }
}

const startApp = (imports: DynamicModule[], providers: DynamicModule['providers'] = [Jobs]): Promise<TestingModule> =>
  startModules({ imports, providers });

const registered = (app: TestingModule, name?: string): LockService => app.get(getLockServiceToken(name));
const start = async (registration: DynamicModule): Promise<LockService> =>
  registered(await startApp([registration], []));

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
const WITHOUT_ADDRESS = 'got options without the address of a server, so the client would connect to localhost.';
const OF_REDIS = 'It is an option of RedisLockModule, which keeps locks in Redis.';

const BAD: [options: object | undefined, message: string][] = [
  [{ mysql: 'mysql://root:se%hunter2@host:port' }, 'The URL of the database cannot be read.'],
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
  [{ postgres: [url] }, 'postgres must be a URL, options of pg, a Pool of pg, or a PGlite: got an array.'],
  [{ postgres: { port: 5432, password: 'hunter2' } }, `${WITHOUT_ADDRESS} Give host or connectionString,`],
  [{ postgres: { hosst: 'a' } }, WITHOUT_ADDRESS],
  [{ postgres: { host: 'postgres://u:hunter2@a' } }, 'got host a string, which is not the name of a host.'],
  [{ postgres: { host: 5 } }, 'got host 5, which is not the name of a host. Is the variable that it comes from set?'],
  [
    { postgres: { host: 'a', port: NaN } },
    'got port NaN, which is not a port. Is the variable that it comes from set?',
  ],
  [
    { postgres: { connectionString: 'hunter2' } },
    'postgres.connectionString must be a URL like postgres://user:password',
  ],
  [{ postgres: { connectionString: 5 } }, 'postgres.connectionString must be a URL like postgres://user:password'],
  [{ postgres: Promise.resolve() }, 'or a PGlite: got a Promise, which is not awaited.'],
  [{ postgres: new URL(url) }, 'got a URL object. Give its text: url.href.'],
  [{ postgres: url, redis: 'redis://a' }, OF_REDIS],
  [{ postgres: url, redlock: ['redis://a'] }, OF_REDIS],
  [{ postgres: url, memory: true }, 'RedisLockModule.forRoot({ memory: true }) keeps locks in memory.'],
  [{ postgres: url, keyPrefix: 'a' }, 'To separate the locks of applications, use a table for each'],
  [{ postgres: url, waitForReplicas: { replicas: 1 } }, 'A database waits for its replicas itself'],
  [{ postgres: url, admission: false }, 'It is an option of a Redlock.'],
  [{ url }, "Did you mean postgres: 'postgres://user:password@host:5432/database', or mysql: 'mysql://...'?"],
  [{ connectionString: url }, 'Did you mean postgres: { connectionString: ... }?'],
  [{ pool: {} }, 'Did you mean postgres: pool, or mysql: pool?'],
  [{ host: 'a' }, 'Did you mean postgres: { host: ... }, or mysql: { host: ... }?'],
  [{ password: 'hunter2' }, 'Did you mean postgres: { host: ... }, or mysql: { host: ... }?'],
  [{ postgres: url, schema: 'a' }, "Did you mean table: 'schema.name'?"],
  [{ postgres: url, ttl: 5 }, 'Did you mean ttlMs?'],
  [{ postgres: url, createTable: 'yes' }, 'createTable must be true or false: got "yes".'],
  [{ postgres: url, commandTimeoutMs: 5 }, 'commandTimeoutMs must be a whole number of milliseconds from 10 to 60000'],
  [{ postgres: url, janitor: true }, 'janitor must be false, or an object like { keepMs: 86_400_000 }: got true.'],
  [{ postgres: url, janitor: [] }, 'janitor must be false, or an object like { keepMs: 86_400_000 }: got an array.'],
  [{ postgres: url, janitor: { keep: 5 } }, 'There is no option "keep": expected keepMs.'],
  [{ postgres: url, janitor: { keepMs: 59_999 } }, 'janitor.keepMs must be a whole number of milliseconds from 60000'],
  ...['', 'a b', 'a"b', 'a.b.c', '.a', 'a.', '1a', 'a;drop', 'a'.repeat(64), 5].map((table): [object, string] => [
    { postgres: url, table },
    'table must be the name of a table, or schema.name, of letters, digits and _: got',
  ]),
];

const MYSQL = 'mysql://host/shop';

it.each([
  [{ mysql: undefined }, 'A database is expected, as postgres or mysql: got mysql: undefined. Is the variable set?'],
  [{ mysql: url }, 'mysql must be a URL like mysql://user:password@host:3306/database: got another text.'],
  [{ mysql: { hosst: 'a' } }, WITHOUT_ADDRESS],
  [{ mysql: { socketPath: 5 } }, 'got socketPath 5, which is not the path of a socket.'],
  [{ mysql: { uri: 'hunter2' } }, 'mysql.uri must be a URL like mysql://user:password@host:3306/database: got another'],
  [{ mysql: Promise.resolve() }, 'got a Promise, which is not awaited.'],
  [{ mysql: 7 }, 'mysql must be a URL, options of mysql2, or a pool of mysql2'],
  [{ mysql: { query: () => {} } }, 'mysql must not be a connection or a transaction that the application uses itself'],
  [{ mysql: MYSQL, postgres: url }, 'One database is expected: got postgres and mysql.'],
  [
    { mysql: MYSQL, fair: true },
    'fair needs a queue in the database, and MySQL and MariaDB cannot notify a waiting process',
  ],
  [{ mysql: MYSQL, ttl: 5, nonsense: 1 }, /expected (?!.*\bfair).*ttlMs.*Did you mean ttlMs/],
  [{ postgres: url, nonsense: 1 }, /expected .*\bfair\b/],
  [{ mariadb: MYSQL }, 'Did you mean mysql? It is also for MariaDB.'],
])('an application does not start with %j [G775]', async (options, message) => {
  const starting = start(SqlLockModule.forRoot(options as never));
  await expect(starting).rejects.toThrow(message);
  await expect(starting).rejects.toBeInstanceOf(LockOptionsError);
});

it('the server is the one that PGHOST names if options of pg have no host, as in pg itself', () => {
  onTestFinished(() => void vi.unstubAllEnvs());
  const resolve = (postgres: object) => () => resolveOptions(SQL, { postgres });
  vi.stubEnv('PGHOST', 'a');
  for (const host of [undefined, '']) expect(resolve({ host, database: 'shop' })).not.toThrow();
  expect(resolve({ database: 'shop' })).not.toThrow();
  vi.stubEnv('PGHOST', 'a:5432');
  expect(resolve({ database: 'shop' })).toThrow('got host a string, which is not the name of a host.');
  expect(resolve({ connectionString: url })).not.toThrow(); // it has one
});

it('a port next to a socket of MySQL is ignored, as mysql2 does not use it', () => {
  expect(() => resolveOptions(SQL, { mysql: { socketPath: '/tmp/mysql.sock', port: 0 } })).not.toThrow();
});

it('each option of SqlLockModule has the default that it is described with', () => {
  const defaults = {
    table: 'resource_lock',
    createTable: false,
    commandTimeoutMs: 2_000,
    keepMs: 86_400_000,
    ttlMs: 30_000,
  };
  expect(resolveOptions(SQL, { postgres: url })).toMatchObject(defaults);
  expect(resolveOptions(SQL, { postgres: url, janitor: false }).keepMs).toBeUndefined();
  expect(resolveOptions(SQL, { postgres: url, janitor: { keepMs: 60_000 } }).keepMs).toBe(60_000);
});

it.each(Object.entries(FORMS))('an application has its locks in a PGlite with %s', async (_, registration) => {
  const locks = await start(registration(onPGlite()));
  await locks.withLock('k', async () => expect(await locks.isLocked('k')).toBe(true));
});

it('the example of docs/sql.md with a PGlite runs, the doctor finds nothing wrong with a PGlite, and guard is refused outside of its transactions', async () => {
  const create = vi.spyOn(PGlite, 'create').mockResolvedValue(pglite as never);
  onTestFinished(() => create.mockRestore());
  const { OnPGlite } = await exampleWith<{ OnPGlite: new () => object }>('docs/sql.md', 'class OnPGlite');
  const ofExample = (await startModules({ imports: [OnPGlite] })).get(LockService);
  await ofExample.withLock('k', () => expect(create).toHaveBeenCalledOnce());
  const locks = await openSqlLocks(onPGlite());
  const { findings, nodes } = await diagnosed(locks);
  expect({ findings, nodes }).toMatchObject({ findings: [], nodes: [{ name: 'PGlite', reachable: true }] });
  await locks.withLock('k', async (lock) => {
    await expect(guard(lock, pglite)).rejects.toThrow('guard() was called outside of a transaction');
    await pglite.transaction((inside) => guard(lock, inside));
  });
});

describe.each(Object.entries(FORMS))('with %s an application does not start', (form, registration) => {
  // The forms share the check: some of these show what each of them does with its options.
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
    'Put name and isGlobal next to useFactory, not into its result.',
  );
});

describe('the table', () => {
  it('a start without the table of the locks fails, and the message has the statement that creates it [G700]', async () => {
    const starting = start(SqlLockModule.forRoot({ postgres: pglite, table: 'public.Missing' }));
    await expect(starting).rejects.toBeInstanceOf(LockOptionsError);
    const { message } = (await starting.catch((error: Error) => error)) as Error;
    expect(message).toContain('PGlite has no table "public"."Missing" for locks. Create it in a migration');
    // Some tools do not support defaults.
    await pglite.exec(message.slice(message.indexOf('CREATE TABLE')).replaceAll(/ DEFAULT [^\s,]+/g, ''));
    const locks = await start(
      SqlLockModule.forRoot({ postgres: pglite, table: 'public.Missing', commandTimeoutMs: 20_000 }),
    );
    expect(await locks.withLock('k', ({ fencingToken }) => fencingToken)).toBeGreaterThan(0);
  });

  it('the table may be in another schema, and have the name of an SQL keyword: upper and lower case matter everywhere [G701]', async () => {
    await pglite.exec('CREATE SCHEMA IF NOT EXISTS "Select"');
    const settings = { postgres: pglite, createTable: true, commandTimeoutMs: 20_000 };
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
    const { rows } = await pglite.query(
      `SELECT table_name FROM information_schema.tables WHERE table_schema = 'Select' ORDER BY table_name COLLATE "C"`,
    );
    expect(rows).toEqual([{ table_name: 'From' }, { table_name: 'from' }]);
  });

  it('ddl returns one statement, which can run again, for the requested table', async () => {
    const statement = ddl('postgres', { table: 'of_a_migration' });
    await pglite.exec(`${statement};\n${statement};`);
    await start(SqlLockModule.forRoot({ postgres: pglite, table: 'of_a_migration' }));
    expect(ddl('postgres')).toMatch(/^CREATE TABLE IF NOT EXISTS "resource_lock" \(/);
    expect(() => ddl('oracle' as never)).toThrow('dialect must be "postgres" or "mysql": got "oracle".');
    expect(() => ddl('postgres', { table: 'a; DROP TABLE b' })).toThrow('table must be the name of a table');
  });
});

it('SqlLockModule and RedisLockModule under one name are refused: their locks would not exclude each other [G705]', async () => {
  const memory = RedisLockModule.forRoot({ memory: true });
  const sql = SqlLockModule.forRoot(onPGlite());
  for (const imports of [
    [memory, sql],
    [sql, memory],
  ]) {
    const starting = startApp(imports);
    await expect(starting).rejects.toBeInstanceOf(LockOptionsError);
    await expect(starting).rejects.toThrow(
      /(?=.*RedisLockModule)(?=.*SqlLockModule).* under the same name, "default": their locks would not exclude each other\. Keep one of them, or give one of them a name\.$/,
    );
  }
});

it('two registrations of SqlLockModule under one name are one if they are equal, and are refused if they differ [G706]', async () => {
  const options = onPGlite();
  const app = await startApp([SqlLockModule.forRoot(options), SqlLockModule.forRoot({ ...options, ttlMs: 30_000 })]);
  expect(await registered(app).withLock('k', () => 'ran')).toBe('ran');
  await expect(startApp([SqlLockModule.forRoot(options), SqlLockModule.forRoot(onPGlite())])).rejects.toThrow(
    'registers SqlLockModule under the same name, "default", but with different options (table)',
  );
  const elsewhere = { ...options, postgres: 'postgres://localhost/shop', lazyConnect: true };
  await expect(startApp([SqlLockModule.forRoot(elsewhere), SqlLockModule.forRoot(options)])).rejects.toThrow(
    'but with different options (postgres',
  );
});

it('an application may have locks in a table and others elsewhere, by their names [G707]', async () => {
  const app = await startApp([
    RedisLockModule.forRoot({ memory: true }),
    SqlLockModule.forRoot({ ...onPGlite(), name: 'billing' }),
  ]);
  const lock = await registered(app).acquire('k');
  await registered(app, 'billing').withLock('k', async () => {
    expect((await registered(app, 'billing').list()).locks).toHaveLength(1);
  });
  await lock.release();
});

it('an application that closes finishes the work that holds a lock in the table, and gives the lock back [G708]', async () => {
  const options = onPGlite();
  const app = await startApp([SqlLockModule.forRoot(options)]);
  const jobs = app.get(Jobs);
  const running = jobs.run();
  await until(() => jobs.isRunning, { what: 'it runs' });
  const closing = app.close();
  const refused = () => registered(app).withLock('other', () => false);
  await expect(until(refused, { what: 'it is refused' })).rejects.toThrow();
  jobs.gate.open();
  expect(await running).toBe('done');
  await closing;
  const { rows } = await pglite.query(
    `SELECT expires_at = 'epoch' AS is_free FROM ${options.table} WHERE resource_lock_key = 'job'`,
  );
  expect(rows).toEqual([{ is_free: true }]);
});

it('an application does not start when a method with @Limited has its locks in a table, even in a class of request scope [G887]', async () => {
  @Injectable({ scope: Scope.REQUEST })
  class Partners {
    @Limited('partner', { limit: 2, registration: 'billing' })
    async call(): Promise<void> {}
  }
  const imports = [
    RedisLockModule.forRoot({ memory: true }),
    SqlLockModule.forRoot({ ...onPGlite(), name: 'billing' }),
  ];
  await expect(startApp(imports, [Partners])).rejects.toThrow(
    /^Partners\.call in RootTestModule is @Limited of the registration "billing"\. The store of this registration has no permits\. A database supports only exclusive locks/,
  );
  await expect(startApp(imports)).resolves.toBeDefined();
});

describe.each([
  ['a PostgreSQL', { postgres: (await postgresOfFile()).url, ...PATIENT }],
  ['a PGlite', onPGlite()],
])('a lock in a table of %s', (_, options) => {
  it('that is detached is adopted by only one of all calls that try, with a larger token, and its waiters get it after that [G829]', async () => {
    const [sender, receiver, third] = await Promise.all([1, 2, 3].map(() => openSqlLocks(options)));
    const key = freshKey();
    for (let round = 0; round < 5; round++) {
      const lock = await sender!.acquire(key);
      const parcel = await lock.detach({ ttlMs: 3_600_000 });
      expect(lock.isHeld).toBe(false);
      expect(await third!.inspect(key)).toMatchObject({ holder: { detached: true }, fencingToken: lock.fencingToken });
      await sender!.extend(parcel, { ttlMs: 1_800_000 });
      expect((await third!.inspect(key))!.remainingMs).toBeLessThanOrEqual(1_800_000);
      const waiting = third!.acquire(key, { waitMs: 600_000 });
      const tries = [receiver!.adopt(parcel), receiver!.adopt(parcel), sender!.adopt(parcel)];
      const outcomes = await Promise.allSettled(tries);
      const winners = outcomes.flatMap((outcome) => (outcome.status === 'fulfilled' ? [outcome.value] : []));
      expect(winners).toHaveLength(1);
      const losers = outcomes.filter(({ status }) => status === 'rejected');
      const stolen = { reason: { code: 'LOCK_LOST', reason: 'stolen' } };
      expect(losers).toMatchObject([stolen, stolen]);
      const [adopted] = winners;
      expect(adopted!.fencingToken).toBeGreaterThan(lock.fencingToken);
      expect(await sender!.release(parcel)).toBe(false);
      expect(await adopted!.release()).toBe(true);
      const next = await waiting;
      expect(next.fencingToken).toBeGreaterThan(adopted!.fencingToken);
      await next.release();
      await expect(receiver!.adopt(parcel)).rejects.toMatchObject({ code: 'LOCK_LOST', reason: 'expired' });
    }
  });

  it("shows other processes how many calls waited in its holder's process at its last extension [G944]", async () => {
    const [holding, other] = [await openSqlLocks(options), await openSqlLocks(options)];
    const key = freshKey();
    const behind = async () => (await other.inspect(key))!.holders[0]!.waiters;
    const shows = (calls?: number) =>
      until(async () => (await behind()) === calls, { what: `it shows ${calls} calls` });
    const lock = await holding.acquire(key, { ttlMs: 900 });
    const giveUp = new AbortController();
    const waits = (signal?: AbortSignal) => holding.acquire(key, { ttlMs: 60_000, waitMs: 600_000, signal });
    const next = waits();
    const gone = [waits(giveUp.signal), waits(giveUp.signal)];
    await shows(3);
    expect((await other.list({ match: key })).locks).toMatchObject([
      { waitingProcesses: [], holders: [{ waiters: 3 }] },
    ]);
    giveUp.abort();
    expect(await Promise.allSettled(gone)).toMatchObject([{ status: 'rejected' }, { status: 'rejected' }]);
    await shows(1);
    await lock.release();
    const last = await next;
    const theirs = other.acquire(key, { waitMs: 600_000 });
    await last.release();
    const { owner } = await theirs;
    expect(await holding.inspect(key)).toMatchObject({ holder: { owner }, holders: [{ waiters: undefined }] });
    await (await theirs).release();
  });
});
