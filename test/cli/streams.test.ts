import { spawn, type StdioOptions } from 'node:child_process';
import { once } from 'node:events';
import { openSync, closeSync } from 'node:fs';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { afterAll, beforeAll, expect, it, onTestFinished } from 'vitest';
import { killWithParent } from '../../servers/kill-with-parent.js';
import { compileLibrary } from '../support/compiled-library.js';
import { freshKey } from '../support/claims.js';
import { RedisServer } from '../support/redis-server.js';
import { until } from '../support/until.js';

let server: RedisServer;
beforeAll(async () => {
  compileLibrary();
  server = await RedisServer.start();
}, 60_000);
afterAll(() => server.stop());

/** The command line as a process, with its streams as they are given. */
function start(stdio: StdioOptions, ...argv: string[]) {
  const bin = join(compileLibrary(), 'cli/nest-redis-lock.js');
  const cli = spawn(process.execPath, [bin, ...argv], { env: { ...process.env, REDIS_URL: server.url }, stdio });
  killWithParent(cli);
  onTestFinished(() => void cli.kill('SIGKILL'));
  return { cli, ended: once(cli, 'exit').then(([code, signal]) => (code ?? signal) as number | string) };
}

it('results that nobody reads any more are no error', async () => {
  const { cli, ended } = start(['ignore', 'pipe', 'inherit'], 'ls', '--json');
  cli.stdout!.destroy();
  expect(await ended).toBe(0);
});

it('results that cannot be written are one, and it is said', async () => {
  const readOnly = openSync(fileURLToPath(import.meta.url), 'r');
  onTestFinished(() => closeSync(readOnly));
  const { cli, ended } = start(['ignore', readOnly, 'pipe'], 'ls', '--json');
  const said = cli.stderr!.toArray();
  expect(await ended).toBe(70);
  expect((await said).join('')).toBe('nest-redis-lock: The results cannot be written (EBADF).\n');
});

it('a command whose lock is lost is stopped, although nobody reads that it is', async () => {
  const key = freshKey();
  const { cli, ended } = start(
    ['ignore', 'inherit', 'pipe'],
    ...['run', key, '--ttl', '1s', '--', 'sh', '-c', 'while :; do sleep 0.05; done'],
  );
  cli.stderr!.destroy();
  await until(() => server.command('GET', `lock:{${key}}`), { what: 'the lock is held' });
  await server.command('SET', `lock:{${key}}`, 'another', 'PX', 60_000);
  expect(await ended).toBe(76);
});
