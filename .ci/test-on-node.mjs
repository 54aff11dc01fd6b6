import { spawnSync } from 'node:child_process';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { installNode } from './install-node.mjs';

// Runs the test suite on another version of Node.js, which is installed into a temporary folder:
// npm run test:node -- 22 [arguments for Vitest]

const root = fileURLToPath(new URL('..', import.meta.url));
const [version, ...vitestArguments] = process.argv.slice(2);
if (!/^\d+(\.\d+){0,2}$/.test(version ?? '')) {
  console.error('Which version of Node.js? For example: npm run test:node -- 22');
  process.exit(2);
}

const { bin, remove } = installNode(version);
process.exitCode = 1;
try {
  const node = join(bin, 'node');
  run(node, ['--version']);
  const vitest = ['node_modules/vitest/vitest.mjs', 'run', '--config', 'test/vitest.config.ts', ...vitestArguments];
  // First in PATH, for processes that tests start.
  run(node, vitest, { PATH: `${bin}${delimiter}${process.env.PATH}` });
  process.exitCode = 0;
} catch (error) {
  console.error(error.message);
} finally {
  remove();
}

function run(command, args, env = {}) {
  const { status, signal, error } = spawnSync(command, args, {
    cwd: root,
    env: { ...process.env, ...env },
    stdio: ['ignore', 'inherit', 'inherit'],
  });
  if (error) throw error;
  if (status !== 0) throw new Error(`${command} ended with ${signal ?? `code ${status}`}.`);
}
