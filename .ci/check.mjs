import { spawn } from 'node:child_process';
import { performance } from 'node:perf_hooks';
import { fileURLToPath } from 'node:url';

// What a contributor runs while at work, side by side: npm run check. What it compiled and formatted before, it does not look at again.
const CHECKS = {
  format: 'prettier --check --log-level=warn --cache .',
  lint: 'npm run --silent lint',
  types: 'tsc -p tsconfig.json --incremental --tsBuildInfoFile node_modules/.cache/types.json',
  'tests in simulated time': 'vitest run --config test/vitest.config.ts --project simulated --reporter=dot',
};
const cwd = fileURLToPath(new URL('..', import.meta.url));

const green = await Promise.all(Object.entries(CHECKS).map(check));
process.exitCode = green.every(Boolean) ? 0 : 1;

/** What the command says is shown if it fails. */
function check([name, command]) {
  const startedAt = performance.now();
  const child = spawn(command, { cwd, shell: true, stdio: ['ignore', 'pipe', 'pipe'] });
  let said = '';
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text) => (said += text));
  return new Promise((resolve) => {
    child.on('close', (code) => {
      const seconds = Math.round((performance.now() - startedAt) / 1_000);
      console.log(`${code === 0 ? 'green' : 'red  '} ${name}, ${seconds} s${code === 0 ? '' : `\n${said}`}`);
      resolve(code === 0);
    });
  });
}
