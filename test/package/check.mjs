import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run, smokeTest, step } from './smoke.mjs';

// `npm run check:package`: everything that can only be seen on the packed library.

const root = fileURLToPath(new URL('../..', import.meta.url));
const folder = await mkdtemp(join(tmpdir(), 'nest-redis-lock-package-'));
try {
  await step('build', () => run('npm', ['run', 'build'], root));
  const tarball = await step('pack: dist, docs, README.md, LICENSE and package.json, nothing else', pack);
  await step('publint --strict', () => run('npx', ['--no-install', 'publint', 'run', '--strict', tarball], root));
  await step('are the types wrong?', () => run('npx', ['--no-install', 'attw', '--no-color', tarball], root));
  await smokeTest(tarball, folder);
  console.log('The package is good.');
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}

async function pack() {
  const [packed] = JSON.parse(
    await run('npm', ['pack', '--ignore-scripts', '--json', '--loglevel=silent', '--pack-destination', folder], root),
  );
  const files = packed.files.map((file) => file.path);
  const built = files.filter((file) => file.startsWith('dist/'));
  const documented = files.filter((file) => /^docs\/(adr\/)?[\w-]+\.md$/.test(file));
  assert.ok(documented.includes('docs/fencing.md'));
  assert.ok(documented.includes('docs/adr/0004-fencing-tokens.md'));
  const others = files.filter((file) => !built.includes(file) && !documented.includes(file));
  assert.deepEqual(others.sort(), ['LICENSE', 'README.md', 'package.json']);
  const unexpected = built.filter((file) => !/\.(js|d\.ts)$/.test(file) && file !== 'dist/cjs/package.json');
  assert.deepEqual(unexpected, []);
  return join(folder, packed.filename);
}
