import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, afterEach, beforeAll, describe, expect, it, onTestFinished, vi } from 'vitest';
import { LockService, type Lock } from 'nest-redis-lock';
import { compileLibrary } from '../support/compiled-library.js';
import { freshKey } from '../support/claims.js';
import { openLocks as open } from '../../lib/compose/open-locks.js';
import { untilQueued } from '../support/queue.js';
import { serverOfFile } from '../support/stage.js';
import { until } from '../support/until.js';
import { killWithParent } from '../../servers/kill-with-parent.js';
import { call } from './call.js';

const server = await serverOfFile();
let locks: LockService;
let folder: string;
beforeAll(async () => {
  locks = (await open({ redis: server.url, shutdownTimeoutMs: 0 })).service;
  folder = mkdtempSync(join(tmpdir(), 'cli-run-'));
});
afterAll(async () => {
  await locks.onApplicationShutdown();
  rmSync(folder, { recursive: true });
});

afterEach(() => void vi.restoreAllMocks());

let files = 0;
const freshFile = () => join(folder, String(++files));
const shell = (script: string) => ['--', 'sh', '-c', script];
/** Reports that it runs, and then runs until a signal ends it, with these traps. */
const waits = (file: string, traps = '') =>
  shell(`${traps} echo $$ > ${file}.new && mv ${file}.new ${file}; while :; do sleep 0.05; done`);
const runs = (file: string) => until(() => existsSync(file), { what: 'the command has written its file' });
const isRunning = (pid: number) => {
  try {
    return process.kill(pid, 0);
  } catch {
    return false;
  }
};
/** Makes no stream of the process a terminal. */
const noTerminal = () => {
  for (const name of ['stdin', 'stdout', 'stderr'] as const) {
    const { isTTY } = process[name];
    process[name].isTTY = false;
    onTestFinished(() => void (process[name].isTTY = isTTY));
  }
};
const run = (key: string, ...rest: string[]) => call(['run', key, '--redis', server.url, ...rest]);

/** The command line as a process of its own. */
function start(...argv: string[]): { cli: ChildProcess; ended: Promise<number | string> } {
  const bin = join(compileLibrary(), 'cli/nest-redis-lock.js');
  const cli = spawn(process.execPath, [bin, ...argv], {
    env: { ...process.env, REDIS_URL: server.url },
    detached: true, // a process group of its own, as a shell would make
    stdio: ['ignore', 'ignore', 'inherit'],
  });
  killWithParent(cli);
  onTestFinished(() => void cli.kill('SIGKILL'));
  return { cli, ended: once(cli, 'exit').then(([code, signal]) => (code ?? signal) as number | string) };
}

describe('run', () => {
  it('the command run runs a command under the lock, with its token, exits with its code, and releases the lock [G480]', async () => {
    const key = freshKey();
    const file = freshFile();
    const argv = ['run', key, '--redis', server.url];
    const script = `echo $LOCK_FENCING_TOKEN $MINE > ${file}; while [ ! -e ${file}.go ]; do sleep 0.02; done; exit 7`;
    const running = call([...argv, ...shell(script)], { env: { MINE: 'mine' } });
    await runs(file);
    expect(await locks.isLocked(key)).toBe(true);
    const { fencingToken } = (await locks.inspect(key))!;
    writeFileSync(`${file}.go`, '');
    expect(await running).toMatchObject({ code: 7 });
    expect(readFileSync(file, 'utf8')).toBe(`${fencingToken} mine\n`);
    expect(await locks.isLocked(key)).toBe(false);
  });

  it('it does not hand the credentials of Redis to the command, unless an option says so [G588]', async () => {
    const key = freshKey();
    const { port } = server;
    const given = {
      REDIS_URL: `redis://:${'%20'}@127.0.0.1:${port}/0`,
      REDIS_USERNAME: 'default',
      REDIS_PASSWORD: ' ',
      REDIS_SENTINEL_PASSWORD: 'third',
      MINE: 'mine',
    };
    const file = freshFile();
    const ran = async (env: Record<string, string>, ...options: string[]) => {
      expect(await call(['run', key, ...options, ...shell(`env > ${file}`)], { env })).toMatchObject({ code: 0 });
      const lines = readFileSync(file, 'utf8').split('\n');
      return Object.keys(given).filter((name) => lines.some((line) => line.startsWith(`${name}=`)));
    };
    expect(await ran(given)).toEqual(['MINE']);
    expect(await ran(given, '--pass-credentials')).toEqual(Object.keys(given));
    // An address alone is not a secret, and the command may need it.
    expect(await ran({ REDIS_URL: server.url, MINE: 'mine' })).toEqual(['REDIS_URL', 'MINE']);
  });

  it.each([
    ['exits with 128 and the signal that ended the command', shell('kill -9 $$'), 137],
    ['exits with 127 when there is no such command', ['--', 'no-such-command'], 127],
    ['exits with 126 when it cannot be run', ['--', tmpdir()], 126],
    ['exits with 126 when its path leads through a file', ['--', `${process.execPath}/x`], 126],
    ['exits with 126 when it has no name', ['--', ''], 126],
  ])('it %s, and releases the lock', async (_what, command, code) => {
    const key = freshKey();
    expect(await run(key, ...command)).toMatchObject({ code });
    expect(await locks.isLocked(key)).toBe(false);
  });

  it.each(['SIGINT', 'SIGQUIT', 'SIGTERM', 'SIGHUP'] as const)('%s is passed on to the command', async (signal) => {
    const file = freshFile();
    const before = process.listenerCount(signal);
    noTerminal();
    const running = run(freshKey(), ...waits(file, `trap 'exit 9' ${signal.slice('SIG'.length)};`));
    await runs(file);
    process.emit(signal, signal);
    expect(await running).toMatchObject({ code: 9 });
    expect(process.listenerCount(signal)).toBe(before);
  });

  it('the command run does not start the command while another process holds the lock, and exits with 75 [G481]', async () => {
    const key = freshKey();
    const file = freshFile();
    const lock = await locks.acquire(key);
    const { code, err } = await run(key, '--wait', '500ms', ...shell(`touch ${file}`));
    expect({ code, err }).toEqual({ code: 75, err: expect.stringContaining(`is held by pid ${process.pid}`) });
    expect(await run(key, '--wait', '0', ...shell(`touch ${file}`))).toMatchObject({ code: 75 });
    expect(existsSync(file)).toBe(false);
    const waiting = run(key, '--wait', '20s', ...shell(`touch ${file}`));
    await lock.release();
    expect(await waiting).toMatchObject({ code: 0 });
    expect(existsSync(file)).toBe(true);
  });

  it('the command run stops the command when the lock is lost, and exits with 76 however the command ends [G482]', async () => {
    const key = freshKey();
    const file = freshFile();
    const running = run(key, '--ttl', '3s', ...waits(file, `trap 'echo trapped > ${file}.trapped; exit 0' TERM;`));
    await runs(file);
    await server.command('SET', `lock:{${key}}`, 'another', 'PX', 60_000);
    expect(await running).toMatchObject({ code: 76, err: expect.stringContaining('lost') });
    expect(readFileSync(`${file}.trapped`, 'utf8')).toBe('trapped\n');
    expect(isRunning(Number(readFileSync(file, 'utf8')))).toBe(false);
    expect(await server.command('GET', `lock:{${key}}`)).toBe('another');
  });

  it('it does not start the command when its process was paused until the lock was lost', async () => {
    const file = freshFile();
    const acquire = LockService.prototype.withLock;
    vi.spyOn(LockService.prototype, 'withLock').mockImplementation(function (this: LockService, ...parts: unknown[]) {
      const work = parts.pop() as (lock: Lock) => unknown;
      const late = (lock: Lock) => {
        Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_200); // for longer than its ttl
        return work(lock);
      };
      return Reflect.apply(acquire, this, [...parts, late]) as never;
    });
    expect(await run(freshKey(), '--ttl', '1s', ...shell(`touch ${file}`))).toMatchObject({ code: 76 });
    expect(existsSync(file)).toBe(false);
  });

  it('it kills a command that does not end within the grace time', async () => {
    const key = freshKey();
    const file = freshFile();
    const argv = ['run', key, '--redis', server.url, '--ttl', '3s', ...waits(file, `trap '' TERM;`)];
    const running = call(argv, { graceMs: 300 });
    await runs(file);
    await server.command('DEL', `lock:{${key}}`);
    expect(await running).toMatchObject({ code: 76 });
    expect(isRunning(Number(readFileSync(file, 'utf8')))).toBe(false);
  });
});

describe('run as a process', () => {
  beforeAll(() => void compileLibrary(), 60_000);

  it('a signal to the command line is passed on to the command, and the lock is held until the command has ended [G483]', async () => {
    const key = freshKey();
    const file = freshFile();
    const { cli, ended } = start(
      'run',
      key,
      ...waits(file, `trap 'touch ${file}.trapped; while [ ! -e ${file}.go ]; do sleep 0.02; done; exit 9' TERM;`),
    );
    await runs(file);
    cli.kill('SIGTERM');
    await runs(`${file}.trapped`);
    expect(await locks.isLocked(key)).toBe(true);
    writeFileSync(`${file}.go`, '');
    expect(await ended).toBe(9);
    expect(await locks.isLocked(key)).toBe(false);
  });

  it('a signal while it waits for the lock ends the wait, and the command is never run', async () => {
    const key = freshKey();
    const file = freshFile();
    const lock = await locks.acquire(key);
    const { cli, ended } = start('run', key, '--wait', '1m', ...shell(`touch ${file}`));
    await untilQueued(server, key, 1);
    cli.kill('SIGTERM');
    expect(await ended).toBe(143);
    await untilQueued(server, key, 0);
    await lock.release();
    expect(existsSync(file)).toBe(false);
  });

  it('the lock of a command line that was killed ends after its ttl, even if the command still runs [G484]', async () => {
    const key = freshKey();
    const file = freshFile();
    const { cli, ended } = start('run', key, '--ttl', '1s', ...waits(file));
    await runs(file);
    const pid = Number(readFileSync(file, 'utf8'));
    onTestFinished(() => void process.kill(pid, 'SIGKILL'));
    cli.kill('SIGKILL');
    expect(await ended).toBe('SIGKILL');
    const lock = await locks.acquire(key, { waitMs: 60_000 });
    expect(isRunning(pid)).toBe(true);
    await lock.release();
  });
});
