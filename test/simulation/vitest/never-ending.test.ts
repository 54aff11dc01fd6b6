import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fileURLToPath } from 'node:url';
import { expect, it, onTestFinished } from 'vitest';

const root = fileURLToPath(new URL('../../..', import.meta.url));

/** The report of Vitest, as far as it is looked at. */
interface Report {
  readonly testResults: readonly {
    readonly assertionResults: readonly {
      readonly fullName: string;
      readonly status: string;
      readonly failureMessages: readonly string[];
    }[];
  }[];
}

it('a test and a hook that can never end fail at once, and those after them run', async () => {
  const { testResults } = await runNeverEnding();
  const results = testResults.flatMap(({ assertionResults }) => assertionResults);
  const statuses = Object.fromEntries(results.map(({ fullName, status }) => [fullName, status]));
  expect(statuses).toEqual({
    ...Object.fromEntries([1, 2, 3, 4, 5, 6].map((number) => [`never ends: ${number}`, 'failed'])),
    'asks for what never ends': 'failed',
    'beforeAll does not run': 'skipped',
    'what beforeAll returns runs before it': 'passed',
    'beforeEach does not begin': 'failed',
    'afterEach runs, and fails': 'failed',
    'afterAll runs before it': 'passed',
    'comes after all that': 'passed',
  });
  const reasons = results.flatMap(({ failureMessages }) => failureMessages);
  expect(reasons).toHaveLength(9);
  for (const reason of reasons) expect(reason).toContain('Nothing will ever happen');
});

/** In a process of its own. */
async function runNeverEnding(): Promise<Report> {
  const config = 'test/simulation/vitest/never-ending/vitest.config.ts';
  const args = ['node_modules/vitest/vitest.mjs', 'run', '--config', config, '--reporter', 'json'];
  const child = spawn(process.execPath, args, { cwd: root, stdio: ['ignore', 'pipe', 'inherit'] });
  onTestFinished(() => void child.kill());
  const [output] = await Promise.all([text(child.stdout), once(child, 'exit')]);
  return JSON.parse(output) as Report;
}
