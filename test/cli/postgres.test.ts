import { expect, it, onTestFinished, vi } from 'vitest';
import { freshKey } from '../support/claims.js';
import { openSqlLocks } from '../support/open-locks.js';
import { postgresOfFile } from '../sql/stage.js';
import { until } from '../support/until.js';
import { call } from './call.js';

const WRONG = 'wr0ng,s3cret@/?%';

const server = await postgresOfFile({ fsync: 'on' });

const on = (command: string, ...argv: string[]) => [command, '--postgres', server.url, '--table', 'locks', ...argv];

const openLocks = () => openSqlLocks({ postgres: server.url, table: 'locks' });

it('the command ddl prints the statement that creates the table, and the other commands print it where the table is missing [G725]', async () => {
  const missing = await call(on('ls'));
  expect(missing).toMatchObject({ code: 64, out: '' });
  expect(missing.err).toMatch(
    /Create it with what `npx nest-redis-lock ddl postgres --table locks` prints: CREATE TABLE/,
  );
  const { code, out, err } = await call(['ddl', 'postgres', '--table', 'locks']);
  expect({ code, err }).toEqual({ code: 0, err: '' });
  await server.query(out);
  expect(await call(on('ls'))).toEqual({ code: 0, out: '', err: '' });
});

it('the commands ls, inspect, release, run and doctor work as they do on Redis [G726]', async () => {
  await server.query((await call(['ddl', 'postgres', '--table', 'locks'])).out);
  const [holder, other] = [await openLocks(), await openLocks()];
  const key = freshKey();
  expect(await call(on('inspect', key))).toEqual({ code: 1, out: `${key} is free\n`, err: '' });
  const lock = await holder.acquire(key);
  const waiting = other.acquire(key, { waitMs: 60_000 });
  await until(async () => (await holder.inspect(key))?.waitingProcesses?.length === 1, { what: 'it waits' });
  const { digest } = (await holder.inspect(key))!;
  const shown = await call(on('inspect', key, '--json'));
  expect(JSON.parse(shown.out)).toMatchObject({ key, digest, waitingProcesses: [{ pid: process.pid, waiters: 1 }] });
  expect((await call(on('ls', `${key.slice(0, -1)}*`))).out).toMatch(
    new RegExp(`^${key}\\t.*\\t${digest}\\t.*\\texclusive\\t1\\t1\n`),
  );
  expect(await call(on('run', key, '--wait', '0', '--', 'true'))).toMatchObject({ code: 75 });
  expect(await call(on('release', key, '--owner', 'f'.repeat(16), '--yes'))).toMatchObject({ code: 1 });
  expect(await call(on('release', key, '--owner', digest, '--yes'))).toMatchObject({ code: 0 });
  const next = await waiting;
  expect(next.fencingToken).toBeGreaterThan(lock.fencingToken);
  await next.release();
  await lock.release().catch(() => {});
  const script = `process.exit(Number(process.env.LOCK_FENCING_TOKEN) > ${next.fencingToken} ? 7 : 1)`;
  const ran = await call(on('run', key, '--hold', '1m', '--', process.execPath, '-e', script));
  expect(ran).toMatchObject({ code: 7 });
  expect((await call(on('inspect', key))).out).toContain('kept until');
  expect(await call(on('release', key, '--force', '--yes'))).toMatchObject({ code: 0 });
  expect((await call(on('doctor', '--json'))).code).toBe(0);
  await server.query('ALTER TABLE locks SET UNLOGGED');
  expect(await call(on('doctor'))).toMatchObject({ code: 1, out: expect.stringContaining('UNLOGGED') });
  await server.query('ALTER TABLE locks SET LOGGED');
});

it('a password comes from the URL or from PGPASSWORD, and none is ever printed, whatever is wrong [G727]', async () => {
  const [{ hba_file: rules }] = (await server.query('SHOW hba_file')) as [{ hba_file: string }];
  await server.query((await call(['ddl', 'postgres'])).out);
  await server.query(`CREATE ROLE app LOGIN PASSWORD 'right one'; GRANT ALL ON resource_lock TO app`);
  await server.query(`COPY (VALUES ('host all app all scram-sha-256'), ('host all all all trust')) TO '${rules}'`);
  await server.query('SELECT pg_reload_conf()');
  const url = (password?: string) =>
    `postgres://app${password === undefined ? '' : `:${encodeURIComponent(password)}`}@127.0.0.1:${server.port}/postgres`;
  const ls = (text: string, connectMs = 20_000) => call(['ls', '--postgres', text], { connectMs });
  await until(async () => (await ls(url(WRONG), 500)).code === 69, { what: 'the server asks for passwords' });
  expect(await ls(url('right one'))).toMatchObject({ code: 0 });
  vi.stubEnv('PGPASSWORD', 'right one');
  expect(await ls(url())).toMatchObject({ code: 0 });
  vi.stubEnv('PGPASSWORD', WRONG);
  onTestFinished(() => void vi.unstubAllEnvs());
  const wrong = url(WRONG);
  const called = [
    await ls(wrong, 3_000),
    await ls(url(), 500),
    await call(['run', 'x', '--postgres', wrong, '--', 'true'], { connectMs: 500 }),
    await call(['doctor', '--json', '--postgres', wrong], { connectMs: 500 }),
    await ls(wrong.replaceAll('%25', '%'), 500),
    await ls(wrong.replace('postgres:', 'http:'), 500),
    await ls(WRONG, 500),
    await call(['ls', '--postgres', wrong, '--redis', wrong]),
  ];
  expect(called[0]!.err).toContain('Correct the user name and the password, in the URL or in PGUSER, PGPASSWORD');
  expect(new Set(called.map(({ code }) => code))).toEqual(new Set([64, 69]));
  const parts = ['wr0ng', 's3cret', encodeURIComponent(WRONG)];
  expect(called.filter(({ out, err }) => parts.some((part) => (out + err).includes(part)))).toEqual([]);
});
