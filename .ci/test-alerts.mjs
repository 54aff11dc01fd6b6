import { execFileSync } from 'node:child_process';
import { fileURLToPath } from 'node:url';
import { runnerImport } from 'vite';

// Checks the alert rules of docs/telemetry, and that each fires when it should: npm run test:alerts
// A promtool that is neither on the PATH nor in `.prometheus/` is unpacked there; where that fails this fails.

const root = fileURLToPath(new URL('..', import.meta.url));
const folder = `${root}docs/telemetry/`;
try {
  const { module } = await runnerImport(`${root}servers/find-promtool.ts`, { configFile: false });
  const path = await module.providePromtool();
  const promtool = (...args) => execFileSync(path, args, { cwd: folder, stdio: ['ignore', 'inherit', 'inherit'] });
  promtool('check', 'rules', 'alerts.yml');
  promtool('test', 'rules', 'alerts.test.yml');
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
}
