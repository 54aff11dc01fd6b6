import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it, onTestFinished } from 'vitest';
import type { RedisServer } from '../support/redis-server.js';
import { serverOfFile } from '../support/stage.js';
import { call, type Surroundings } from './call.js';

const RIGHT = 'the right one';
const WRONG = 'wr0ng,s3cret@/?%';

const servers = await Promise.all([1, 2, 3].map(() => serverOfFile('--requirepass', RIGHT)));

const urlOf = ({ port }: RedisServer, password?: string) =>
  password === undefined
    ? `redis://127.0.0.1:${port}`
    : `redis://default:${encodeURIComponent(password)}@127.0.0.1:${port}`;
const redlock = (password?: string) => servers.map((server) => urlOf(server, password)).join(',');

describe('The credentials of the servers', () => {
  it('come from a URL or from the environment, for one Redis and for a Redlock', async () => {
    const [server] = servers as [RedisServer];
    const env = { REDIS_PASSWORD: RIGHT };
    expect(await call(['inspect', 'x', '--redis', urlOf(server)], { env })).toMatchObject({ code: 1 });
    expect(await call(['inspect', 'x'], { env: { ...env, REDIS_URL: urlOf(server) } })).toMatchObject({ code: 1 });
    expect(await call(['inspect', 'x', '--redlock', redlock()], { env })).toMatchObject({ code: 1 });
    expect(await call(['inspect', 'x', '--redlock', redlock(RIGHT)])).toMatchObject({ code: 1 });
    const repeated = servers.flatMap((each) => ['--redlock', urlOf(each, RIGHT)]);
    expect(await call(['inspect', 'x', ...repeated], { env: { REDIS_PASSWORD: WRONG } })).toMatchObject({ code: 1 });
    const { code, err } = await call(['inspect', 'x', '--redis', urlOf(server)]);
    expect({ code, err }).toEqual({
      code: 69,
      err: expect.stringMatching(
        /needs a password, and none was given: NOAUTH\. Set REDIS_PASSWORD, or put .* URL\.$/m,
      ),
    });
  });

  it('no password is ever printed, whatever is wrong [G477]', async () => {
    const [server] = servers as [RedisServer];
    const wrong = urlOf(server, WRONG);
    const env = { REDIS_URL: urlOf(server), REDIS_PASSWORD: WRONG, REDIS_SENTINEL_PASSWORD: WRONG };
    const commands = [
      ['doctor'],
      ['doctor', '--json'],
      ['inspect', 'x'],
      ['ls'],
      ['release', 'x', '--force', '--yes'],
      ['run', 'x'],
    ];
    const tail = (command: string[]) => (command[0] === 'run' ? ['--', 'true'] : []);
    const fails = (argv: string[], surroundings: Surroundings = {}) => call(argv, { ...surroundings, connectMs: 500 });
    const called = await Promise.all([
      ...commands.flatMap((command) => [
        fails([...command, '--redis', wrong, ...tail(command)]),
        fails([...command, ...tail(command)], { env }),
        fails([...command, '--redlock', redlock(WRONG), ...tail(command)]),
      ]),
      fails(['doctor', '--cluster', wrong]),
      fails(['doctor', '--sentinel', `127.0.0.1:${server.port}`, '--sentinel-name', 'x'], { env }),
      // Inputs that cannot be parsed.
      fails(['doctor', wrong]),
      fails([wrong]),
      fails(['doctor', `--${wrong}`]),
      fails(['doctor', `--redsi=${wrong}`]),
      fails(['doctor', `-${wrong}`]),
      fails(['doctor', '--json', '--strict', '--redis', wrong.replace('redis:', 'http:')]),
      fails(['doctor', '--redis', `${wrong}/not-a-number`]),
      fails(['doctor', '--redis', `${wrong}?password=${WRONG}`]),
      fails(['doctor', '--redis', `redis://${WRONG}`]),
      fails(['doctor', '--redis', wrong.replaceAll('%25', '%')]),
      fails(['doctor', '--redis', `redis://wr0ng:${server.port}#s3cret@127.0.0.1`]),
      fails(['doctor', '--redlock', wrong]),
      fails(['doctor', '--sentinel', wrong, '--sentinel-name', 'x']),
      fails(['doctor', '--cluster', `${wrong}/1`]),
      fails(['doctor', '--wait', WRONG, '--redis', wrong]),
      fails(['run', 'x', '--wait', WRONG, '--redis', wrong, '--', 'true']),
      fails(['doctor'], { env: { REDIS_URL: WRONG } }),
      fails(['doctor'], { env: { ...env, REDIS_TLS: WRONG } }),
    ]);
    expect(new Set(called.map(({ code }) => code))).toEqual(new Set([64, 69]));
    const parts = ['wr0ng', 's3cret', encodeURIComponent(WRONG)];
    expect(called.filter(({ out, err }) => parts.some((part) => (out + err).includes(part)))).toEqual([]);
  });

  it('REDIS_TLS_CA names the file of a certificate, and one that cannot be read is refused', async () => {
    const [server] = servers as [RedisServer];
    const folder = mkdtempSync(join(tmpdir(), 'certificates-'));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    const env = { REDIS_URL: urlOf(server), REDIS_TLS_CA: join(folder, 'ca.pem') };
    expect(await call(['doctor'], { env })).toMatchObject({ code: 64, err: expect.stringContaining('ENOENT') });
    writeFileSync(env.REDIS_TLS_CA, 'no certificate');
    const connectMs = 500;
    expect(await call(['doctor'], { env, connectMs })).toMatchObject({ code: 69 }); // and not in plain text
    const withTls = { REDIS_URL: urlOf(server), REDIS_TLS: '1' };
    expect(await call(['doctor'], { env: withTls, connectMs })).toMatchObject({ code: 69 });
  });
});

describe('Wrong command lines', () => {
  it.each([
    ['no command', [], 'Usage: nest-redis-lock'],
    ['a command that there is not', ['lock'], 'The first word must be a command: doctor'],
    ['a command of other tools', ['list', 'order:*'], 'There is no command list. Did you mean ls?'],
    ['no database', ['ddl'], 'ddl is for PostgreSQL and MySQL. Write ddl postgres, or ddl mysql.'],
    ['an unknown option', ['doctor', '--jsn'], 'There is no option --jsn. See --help.'],
    ['an option of another command', ['doctor', '--force'], 'doctor has no option --force.'],
    ['no key', ['inspect', '--redis', 'redis://x'], 'inspect takes a key: got 0 words.'],
    ['two keys', ['inspect', 'a', 'b', '--redis', 'redis://x'], 'inspect takes a key: got 2 words.'],
    ['an empty key', ['inspect', '', '--redis', 'redis://x'], 'must be a non-empty string'],
    ['no servers', ['doctor'], 'Name the servers'],
    [
      'two kinds of servers',
      ['doctor', '--redis', 'redis://x', '--cluster', 'redis://x'],
      'only one of --redis and --cluster',
    ],
    ['a Redlock of two', ['doctor', '--redlock', 'redis://x,redis://y'], 'at least 3 independent masters'],
    ['a Sentinel without a name', ['doctor', '--sentinel', 'x:1'], 'must be given together'],
    [
      'a wait without a unit',
      ['run', 'x', '--wait', '10', '--redis', 'redis://x', '--', 'true'],
      '--wait must be a length of time',
    ],
    [
      'a command without "--"',
      ['run', 'x', 'true', '--redis', 'redis://x'],
      'run takes a key, and its command after "--": got 2 words.',
    ],
    ['no command to run', ['run', 'x', '--redis', 'redis://x'], 'run needs a command'],
    ['two patterns', ['ls', 'a', 'b', '--redis', 'redis://x'], 'ls takes at most one pattern: got 2 words.'],
    [
      'a limit that is no number',
      ['ls', '--limit', 'ten', '--redis', 'redis://127.0.0.1:1'],
      '--limit must be a whole number',
    ],
    [
      'both ways to release',
      ['release', 'x', '--owner', 'a', '--force', '--redis', 'redis://x'],
      'release takes --owner or --force, not both',
    ],
    ['a prefix on PostgreSQL', ['ls', '--postgres', 'postgres://x/y', '--prefix', 'a'], '--prefix is for Redis'],
    ['a table on Redis', ['ls', '--redis', 'redis://x', '--table', 'a'], '--table is for a database'],
    ['PostgreSQL and Redis', ['ls', '--redis', 'redis://x', '--postgres', 'y'], 'only one of --redis and --postgres'],
    ['two databases', ['ls', '--mysql', 'mysql://x/y', '--postgres', 'y'], 'only one of --postgres and --mysql'],
    ['a prefix on MySQL', ['ls', '--mysql', 'mysql://x/y', '--prefix', 'a'], '--prefix is for Redis'],
    ['a table that has no name', ['ddl', 'postgres', '--table', 'a b'], 'table must be the name of a table'],
    ['servers for what connects to none', ['ddl', 'mysql', '--mysql', 'x'], 'ddl has no option --mysql.'],
    ['a database that is given twice', ['ls', '--mysql', 'mysql://x/y', '--mysql', 'z'], '--mysql was given twice.'],
    ['a ttl that is given twice', ['run', 'x', '--ttl', '1s', '--ttl=2s', '--', 'true'], '--ttl was given twice.'],
    ['a database that is not supported', ['ddl', 'sqlite'], 'MySQL: got sqlite. Write ddl postgres, or ddl mysql.'],
    ['a URL for a database', ['ddl', 'mysql://u:secret@x/y'], 'MySQL. Write ddl postgres, or ddl mysql.'],
    ['an option without its value', ['doctor', '--redis'], '--redis needs a value.'],
    ['an option whose value is empty', ['release', 'x', '--owner='], '--owner needs a value.'],
    ['an option that another one follows', ['release', 'x', '--owner', '--yes'], '--owner needs a value.'],
    ['a switch with a value', ['doctor', '--json=yes'], '--json takes no value.'],
    ['help for an unknown command', ['help', 'doctr'], 'Help is available for doctor, ls, inspect, release, run, ddl.'],
  ])('%s exits with 64 and says why', async (_what, argv, message) => {
    const { code, out, err } = await call(argv);
    expect({ code, said: out + err }).toEqual({ code: 64, said: expect.stringContaining(message) });
  });

  it('--version prints the version of the package, --help all commands, and an empty REDIS_URL is reported as empty', async () => {
    const { version } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
      version: string;
    };
    for (const argv of [['--version'], ['doctor', '--version']])
      expect(await call(argv)).toEqual({ code: 0, out: `${version}\n`, err: '' });
    const { code, out } = await call(['--help']);
    expect([code, Math.max(...out.split('\n').map((line) => line.length)) <= 80]).toEqual([0, true]);
    for (const command of ['doctor', 'ls', 'inspect', 'release', 'run', 'ddl'])
      expect(out).toMatch(new RegExp(`^ {2}${command} `, 'm'));
    const empty = await call(['doctor'], { env: { REDIS_URL: '' } });
    expect(empty).toMatchObject({ code: 64, err: expect.stringContaining('REDIS_URL is empty') });
  });

  it.each(['doctor', 'ls', 'inspect', 'release', 'run', 'ddl'])(
    'the help of %s describes only that command: its arguments, its options and its exit codes',
    async (command) => {
      const { code, out, err } = await call(['help', command]);
      expect({ code, err }).toEqual({ code: 0, err: '' });
      expect(out).toContain(`Usage: nest-redis-lock ${command}`);
      expect(out).toContain('--redis URL');
      expect(out).toMatch(/^Exit codes: 0/m);
      const [usage = ''] = out.split('\n');
      const options = [...usage.matchAll(/--[a-z-]+/g)].map(([name]) => name);
      for (const option of options) expect(out).toMatch(new RegExp(`^  ${option}\\b.* {2}\\S`, 'm'));
      expect(await call([command, '--help'])).toEqual({ code, out, err });
      expect(await call([command, '-h'])).toEqual({ code, out, err });
      const other = command === 'ls' ? 'run' : 'ls';
      expect(out).not.toMatch(new RegExp(`^  ${other} `, 'm'));
    },
  );
});
