import { writeFile } from 'node:fs/promises';
import { inspect } from 'node:util';
import { Test } from '@nestjs/testing';
import { LockService, LockUnavailableError, type LockError } from 'nest-redis-lock';
import { SqlLockModule, type PostgresSource } from 'nest-redis-lock/sql';
import pg from 'pg';
import { afterAll, beforeAll, beforeEach, expect, it, onTestFinished } from 'vitest';
import { RecordingLogger, startModules } from '../support/nest-app.js';
import { until } from '../support/until.js';
import { postgresOfFile } from './stage.js';

const SECRET = 'hunter2';
const KEY = '-----BEGIN PRIVATE KEY-----';

const server = await postgresOfFile();
/** For the server, it is a connection of another process. */
let others: LockService;
let log: RecordingLogger;

beforeAll(async () => {
  const [row] = await server.query('SHOW hba_file');
  await writeFile(
    String(row!.hba_file),
    'host all guarded 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 trust\n',
  );
  await server.query(`CREATE USER guarded PASSWORD '${SECRET}'`);
  await server.query('GRANT ALL ON SCHEMA public TO guarded');
  await server.query('SELECT pg_reload_conf()');
  const imports = [SqlLockModule.forRoot({ postgres: server.url, createTable: true, commandTimeoutMs: 20_000 })];
  others = (await Test.createTestingModule({ imports }).setLogger(new RecordingLogger()).compile()).get(LockService);
  await server.query('GRANT ALL ON resource_lock TO guarded');
});
afterAll(() => others.onApplicationShutdown());
beforeEach(() => void (log = new RecordingLogger()));

async function start(postgres: PostgresSource, more: object = {}): Promise<LockService> {
  const options = {
    createTable: true,
    commandTimeoutMs: 20_000,
    connectTimeoutMs: 60_000,
    waitMs: 60_000,
    ...more,
    postgres,
  };
  return (await startModules({ imports: [SqlLockModule.forRoot(options)] }, log)).get(LockService);
}

const url = (login = `guarded:${SECRET}`) => `postgres://${login}@127.0.0.1:${server.port}/postgres`;
const config = () => ({ host: '127.0.0.1', port: server.port, user: 'guarded', database: 'postgres' });

async function connections(): Promise<Record<string, unknown>[]> {
  return server.query(`SELECT application_name, usename FROM pg_stat_activity WHERE usename = 'guarded'`);
}

/** Waits until the sessions of earlier tests have ended, which the server lists for a while after they were closed. */
const noneIsLeft = () => until(async () => (await connections()).length === 0, { what: 'all sessions have ended' });

/** Waits for a lock of another process, so that all connections are open. */
async function use(locks: LockService): Promise<void> {
  await until(async () => (await connections()).length === 1, {
    what: 'the session of the check at the start has ended',
  });
  const lock = await others.acquire('k');
  const ended = locks.withLock('k', () => {});
  await until(async () => (await connections()).length >= 2, { what: 'it listens' });
  await lock.release();
  await ended;
}

const pool = (options: object) => {
  const made = new pg.Pool(options);
  onTestFinished(() => made.end());
  return made;
};

const SOURCES: [name: string, source: () => PostgresSource][] = [
  ['a URL', url],
  [
    'a URL with settings of the application',
    () => `${url()}?application_name=shop&options=-c%20statement_timeout%3D1&statement_timeout=1&lock_timeout=1`,
  ],
  ['options', () => ({ ...config(), password: SECRET })],
  ['options whose password is made anew for each connection', () => ({ ...config(), password: async () => SECRET })],
  [
    'options as Knex has them, which hide the password',
    () => Object.defineProperty(config(), 'password', { value: SECRET, enumerable: false }),
  ],
  ['a Pool with a URL', () => pool({ connectionString: url() })],
  ['a Pool as TypeORM makes it, with options', () => pool({ ...config(), password: SECRET, max: 1 })],
];

it.each(SOURCES)('locks by %s have two connections of their own, by their own name [G702]', async (_, source) => {
  await noneIsLeft();
  await use(await start(source()));
  const own = { application_name: 'nest-redis-lock', usename: 'guarded' };
  expect(await connections()).toEqual([own, own]);
});

it('a Pool has its options copied: its connections are not used, so a lock can be acquired while all of them are taken [G703]', async () => {
  const taken = pool({ ...config(), password: SECRET, max: 1 });
  const client = await taken.connect();
  await client.query('BEGIN');
  const locks = await start(taken);
  const lock = await locks.acquire('k');
  await client.query('ROLLBACK');
  expect((await locks.inspect('k'))?.holder).toBeDefined(); // it does not end with the transaction
  await lock.release();
  expect(taken.totalCount).toBe(1);
  client.release();
});

/** The readable text of an error, of the log, and of the service. */
function shown(...parts: unknown[]): string {
  const chain = (error: unknown): unknown[] =>
    error instanceof Error ? [error.message, error.stack, ...chain(error.cause)] : [error];
  return [...parts.flatMap(chain), ...parts, ...log.lines, ...log.debugged]
    .map((part) => (typeof part === 'string' ? part : inspect(part, { depth: 20, showHidden: true })))
    .join('\n');
}

const refused = (postgres: PostgresSource, more?: object): Promise<LockError> =>
  start(postgres, more).then(
    () => Promise.reject(new Error('it started')),
    (error: LockError) => error,
  );

it('no error, log or diagnosis contains a password or a TLS key: with a wrong password, an unreadable URL, or a missing server [G704]', async () => {
  const wrong = url().replace(SECRET, `${SECRET}-wrong`);
  const short = { connectTimeoutMs: 10 };
  const nowhere = `postgres://guarded:${SECRET}@no-such-host.invalid/postgres`;
  const closed = `postgres://guarded:${SECRET}@127.0.0.1:1/postgres`;
  const errors = [
    await refused(wrong, { connectTimeoutMs: 2_000 }),
    await refused(pool({ connectionString: wrong }), { connectTimeoutMs: 2_000 }),
    await refused(`postgres://guarded:${SECRET}@127.0.0.1:not-a-port/postgres`),
    await refused(`postgres://guarded:${SECRET}%ZZ@[::1/postgres`),
    await refused(nowhere, short),
    await refused(closed, short),
    await refused({ ...config(), password: SECRET, ssl: { key: KEY, ca: KEY } }, { connectTimeoutMs: 2_000 }),
  ];
  expect(errors.map(({ code }) => code)).toEqual([
    'LOCK_UNAVAILABLE',
    'LOCK_UNAVAILABLE',
    'LOCK_OPTIONS',
    'LOCK_OPTIONS',
    'LOCK_UNAVAILABLE',
    'LOCK_UNAVAILABLE',
    'LOCK_UNAVAILABLE',
  ]);
  expect(errors[0]!.message).toContain(`127.0.0.1:${server.port}/postgres`);
  expect(errors[0]!.message).toContain('Correct the user name and the password.');
  const locks = await start(wrong, { lazyConnect: true, commandTimeoutMs: 20_000, waitMs: 0 });
  const unavailable: unknown = await locks.acquire('k').catch((error: unknown) => error);
  expect(unavailable).toBeInstanceOf(LockUnavailableError);
  const all = shown(...errors, unavailable, locks, await locks.diagnose());
  expect(all).toContain('password authentication failed for user "***"');
  expect(all).not.toContain('guarded');
  expect(all).not.toContain(SECRET);
  expect(all).not.toContain(KEY);
});

it('a password that the server repeats, as in the message of a policy, is hidden [G990]', async () => {
  await server.query(
    `CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no lock for %, who has ${SECRET}', current_user; END $$`,
  );
  await server.query(`CREATE TABLE telling (LIKE resource_lock INCLUDING ALL)`);
  await server.query(`CREATE TRIGGER tells BEFORE INSERT ON telling FOR EACH ROW EXECUTE FUNCTION tell()`);
  await server.query('GRANT ALL ON telling TO guarded');
  const locks = await start(
    { ...config(), password: async () => SECRET },
    { table: 'telling', createTable: false, waitMs: 0 },
  );
  const error: unknown = await locks.acquire('k').catch((refusal: unknown) => refusal);
  expect(String(error)).toContain('no lock for ***, who has ***');
  expect(shown(error, await locks.diagnose())).not.toMatch(/guarded|hunter2/);
});

it('a statement is prepared under a name made from its text, since a pooler may share a session that has prepared the statement of another table', async () => {
  const names = new Set<string>();
  class Client extends pg.Client {
    override query(...args: unknown[]): never {
      const [{ name }] = args as [{ name?: string }];
      if (name?.startsWith('nest_redis_lock_take_')) names.add(name);
      return (super.query as (...all: unknown[]) => never)(...args);
    }
  }
  for (const table of ['one', 'other', 'one']) {
    const locks = await start({ connectionString: server.url, Client }, { table });
    for (let turn = 0; turn < 2; turn++) await locks.withLock('k', () => {});
  }
  expect([...names]).toEqual(Array.from({ length: 2 }, () => expect.stringMatching(/_[0-9a-f]{16}$/)));
});
