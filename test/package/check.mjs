import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run, smokeTest, step } from './smoke.mjs';

// `npm run check:package`: everything that can only be seen on the packed library.

const root = fileURLToPath(new URL('../..', import.meta.url));
const manifest = JSON.parse(await readFile(join(root, 'package.json'), 'utf8'));
const folder = await mkdtemp(join(tmpdir(), 'nest-redis-lock-package-'));
try {
  await step('build', () => run('npm', ['run', 'build'], root));
  const tarball = await step('pack: dist, user guides, README.md, LICENSE and package.json, nothing else', pack);
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
  const guides = manifest.files.filter((file) => file.startsWith('docs/'));
  assert.ok(guides.includes('docs/fencing.md'));
  const others = files.filter((file) => !built.includes(file));
  assert.deepEqual(others.sort(), ['LICENSE', 'README.md', ...guides, 'package.json'].sort());
  const unexpected = built.filter((file) => !/\.(js|d\.ts)$/.test(file) && file !== 'dist/cjs/package.json');
  assert.deepEqual(unexpected, []);
  return join(folder, packed.filename);
}
