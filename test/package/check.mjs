import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { program, run, smokeTest, step } from './smoke.mjs';

// `npm run check:package [-- --all]`: everything that can only be seen on the packed library, with `--all` on more pairs of Nest and
// ioredis. By itself this packs what was built before.

const root = fileURLToPath(new URL('../..', import.meta.url));
const manifest = JSON.parse(await read('package.json'));
/** A quarter more than 0.1.0 had when this was written: a change that makes it much larger should be noticed. */
const MOST_BYTES = 900_000;
const folder = await mkdtemp(join(tmpdir(), 'nest-redis-lock-package-'));
try {
  await step('the declarations of the CommonJS build compile by themselves', compileDeclarations);
  const tarball = await step(
    'pack: what lib/ is built to, user guides, skills, README.md, SECURITY.md, LICENSE, package.json',
    pack,
  );
  await step('publint --strict', () => run(program(root, 'publint'), ['run', '--strict', tarball], root));
  await step('are the types wrong?', () => run(program(root, 'attw'), ['--no-color', tarball], root));
  await step('sbom: what the package needs at run time is nothing, what it is built with is named', sbom);
  await smokeTest(tarball, folder, { allVersions: process.argv.includes('--all') });
  console.log('The package is good.');
} catch (error) {
  console.error(error.message);
  process.exitCode = 1;
} finally {
  await rm(folder, { recursive: true, force: true });
}

/** With this TypeScript: the applications below resolve those of the other build, or compile with an older one. */
async function compileDeclarations() {
  const options = ['--noEmit', '--strict', '--skipLibCheck', 'false', '--experimentalDecorators', '--types', 'node'];
  const lib = ['--target', 'ES2022', '--lib', 'ES2022', '--module', 'nodenext', '--moduleResolution', 'nodenext'];
  const entries = Object.values(manifest.exports).flatMap(({ require: cjs }) => cjs?.types ?? []);
  await run(program(root, 'tsc'), ['--ignoreConfig', ...options, ...lib, ...entries], root);
}

async function pack() {
  const [packed] = JSON.parse(
    await run('npm', ['pack', '--ignore-scripts', '--json', '--loglevel=silent', '--pack-destination', folder], root),
  );
  const files = packed.files.map((file) => file.path);
  const guides = manifest.files.filter((file) => /^(docs|skills)\//.test(file));
  for (const one of ['docs/fencing.md', 'skills/diagnose-locks/SKILL.md']) assert.ok(guides.includes(one));
  const others = ['LICENSE', 'README.md', 'SECURITY.md', ...guides, 'package.json', 'dist/cjs/package.json'];
  assert.deepEqual(files.toSorted(), [...(await built()), ...others].toSorted());
  assert.deepEqual(
    files.filter((file) => /\.(test|spec|test-d)\.|\.map$/.test(file)),
    [],
  );
  // The sources are not in the package: a debugger would look for them in the place of the build.
  const mapped = await Promise.all(files.map(async (file) => (await read(file)).includes('sourceMappingURL=') && file));
  assert.deepEqual(mapped.filter(Boolean), []);
  const { size } = packed;
  assert.ok(size <= MOST_BYTES, `The tarball has ${size} bytes: raise MOST_BYTES (${MOST_BYTES}) if that is meant.`);
  assert.ok((await read('LICENSE')).startsWith(`${manifest.license} License`));
  checkManifest();
  return join(folder, packed.filename);
}

/** The output of each file of the library, and nothing else: no file of an earlier build. */
async function built() {
  const sources = await readdir(join(root, 'lib'), { recursive: true });
  const modules = sources.filter((file) => file.endsWith('.ts')).map((file) => file.slice(0, -'.ts'.length));
  return modules.flatMap((name) =>
    ['esm', 'cjs'].flatMap((format) => [`dist/${format}/${name}.js`, `dist/${format}/${name}.d.ts`]),
  );
}

/** The list of components that is published with each version. */
async function sbom() {
  const { metadata, components } = JSON.parse(
    await run('npm', ['run', '--silent', 'sbom'], root, { npm_config_loglevel: 'silent' }),
  );
  assert.equal(metadata.component.purl, `pkg:npm/${manifest.name}@${manifest.version}`);
  const isForDevelopment = ({ properties }) => properties.some(({ name }) => name === 'cdx:npm:package:development');
  const names = components.filter(isForDevelopment).map(({ purl }) => purl);
  assert.ok(names.includes(`pkg:npm/vitest@${manifest.devDependencies.vitest}`));
  assert.deepEqual(
    components.filter((component) => !isForDevelopment(component)).map(({ purl }) => purl),
    [],
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
