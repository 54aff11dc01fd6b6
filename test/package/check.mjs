import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { run, smokeTest, step } from './smoke.mjs';

// `npm run check:package`: everything that can only be seen on the packed library.

const root = fileURLToPath(new URL('../..', import.meta.url));
const manifest = JSON.parse(await read('package.json'));
/** A quarter more than 0.1.0 had when this was written: what makes it much larger should be seen. */
const MOST_BYTES = 650_000;
const folder = await mkdtemp(join(tmpdir(), 'nest-redis-lock-package-'));
try {
  await step('build', () => run('npm', ['run', 'build'], root));
  const tarball = await step('pack: what lib/ is built to, user guides, README.md, LICENSE, package.json', pack);
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
  const guides = manifest.files.filter((file) => file.startsWith('docs/'));
  assert.ok(guides.includes('docs/fencing.md'));
  const others = ['LICENSE', 'README.md', ...guides, 'package.json', 'dist/cjs/package.json'];
  assert.deepEqual(files.toSorted(), [...(await built()), ...others].toSorted());
  assert.deepEqual(
    files.filter((file) => /\.(test|spec|test-d)\.|\.map$/.test(file)),
    [],
  );
  // The sources are not in the package: a debugger would look for them where they were built.
  const mapped = await Promise.all(files.map(async (file) => (await read(file)).includes('sourceMappingURL=') && file));
  assert.deepEqual(mapped.filter(Boolean), []);
  const { size } = packed;
  assert.ok(size <= MOST_BYTES, `The tarball has ${size} bytes: raise MOST_BYTES (${MOST_BYTES}) if that is meant.`);
  assert.ok((await read('LICENSE')).startsWith(`${manifest.license} License`));
  checkManifest();
  return join(folder, packed.filename);
}

/** What is made of each file of the library, and nothing else: no file that was left of an earlier build. */
async function built() {
  const sources = await readdir(join(root, 'lib'), { recursive: true });
  const modules = sources.filter((file) => file.endsWith('.ts')).map((file) => file.slice(0, -'.ts'.length));
  return modules.flatMap((name) =>
    ['esm', 'cjs'].flatMap((format) => [`dist/${format}/${name}.js`, `dist/${format}/${name}.d.ts`]),
  );
}

/** Installing the package installs nothing else, and runs nothing. */
function checkManifest() {
  for (const kind of ['dependencies', 'optionalDependencies', 'bundleDependencies', 'bundledDependencies']) {
    assert.deepEqual(Object.keys(manifest[kind] ?? {}), [], kind);
  }
  for (const script of ['preinstall', 'install', 'postinstall', 'prepare']) assert.ok(!(script in manifest.scripts));
}

function read(file) {
  return readFile(join(root, file), 'utf8');
}
