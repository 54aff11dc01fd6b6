import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { runnerImport } from 'vite';
import { tryExample, tryOnRuntime } from '../package/smoke.mjs';

// Runs tests, and an application with the packed library, on other runtimes, which it installs into a temporary folder:
// npm run test:runtimes [-- bun deno@latest]

const root = fileURLToPath(new URL('../..', import.meta.url));
/** The command before the program that each of them runs. */
const ARGUMENTS = { bun: ['--bun'], deno: ['run', '--allow-all'] };

const { module } = await runnerImport(join(root, 'test/runtimes/runtimes.ts'));
const wishes = process.argv.length > 2 ? process.argv.slice(2) : Object.keys(ARGUMENTS);
const folder = mkdtempSync(join(tmpdir(), 'runtimes-'));
try {
  run('npm', ['run', 'build']);
  run('npm', ['pack', '--ignore-scripts', '--loglevel=silent', '--pack-destination', folder]);
  const tarball = join(
    folder,
    readdirSync(folder).find((file) => file.endsWith('.tgz')),
  );
  for (const wish of wishes) {
    const [name, version = module.RUNTIMES[name]?.version] = wish.split('@');
    if (!(name in ARGUMENTS))
      throw new Error(`Which runtime is ${name}? For example: npm run test:runtimes -- bun deno@latest`);
    await test(name, version, tarball);
  }
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}

async function test(name, version, tarball) {
  const prefix = join(folder, name);
  run('npm', ['install', '--no-save', '--no-audit', '--no-fund', '--prefix', prefix, `${name}@${version}`]);
  const bin = join(prefix, 'node_modules/.bin');
  const program = join(bin, name);
  run(program, ['--version']);
  const args = ARGUMENTS[name];
  const path = `${bin}${delimiter}${process.env.PATH}`;
  await tryOnRuntime(tarball, join(folder, `app-${name}`), name, program, ...args);
  if (name === 'bun') await tryExample('bun', folder, tarball, program, { PATH: path });
  const vitest = ['node_modules/vitest/vitest.mjs', 'run', '--config', 'test/runtimes/vitest.config.ts'];
  run(program, [...args, ...vitest], { TEST_RUNTIME: name, PATH: path });
}

function run(command, args, env = {}) {
  const options = { cwd: root, env: { ...process.env, ...env }, stdio: ['ignore', 'inherit', 'inherit'] };
  const { status, signal, error } = spawnSync(command, args, options);
  if (error) throw error;
  if (status !== 0) throw new Error(`${command} ${args.join(' ')} ended with ${signal ?? `code ${status}`}.`);
}
