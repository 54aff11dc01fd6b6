import { execFile } from 'node:child_process';
import { cpSync, mkdtempSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { fileURLToPath } from 'node:url';
import { build } from 'vite';
import { afterAll, beforeAll, expect, it } from 'vitest';
import { compileLibrary } from '../support/compiled-library.js';

const run = promisify(execFile);
const compiled = compileLibrary();
/** In the cache of the compiled library, where Nest can be resolved. */
const folder = mkdtempSync(join(compiled, '..', 'copies-'));
const [first, second] = [join(folder, 'first'), join(folder, 'second')];

beforeAll(async () => {
  for (const copy of [first, second]) cpSync(compiled, join(copy, 'dist/esm'), { recursive: true });
  symlinkSync(fileURLToPath(new URL('../../node_modules', import.meta.url)), join(folder, 'node_modules'));
  writeFileSync(
    join(folder, 'both.mjs'),
    `export * as a from '${entryOf(first)}'; export * as b from '${entryOf(second)}';`,
  );
  writeFileSync(join(folder, 'one.mjs'), `export { Locked } from '${entryOf(first)}';`);
  for (const name of ['both', 'one']) {
    await build({
      configFile: false,
      logLevel: 'error',
      root: folder,
      ssr: { noExternal: true, external: ['@nestjs/common', '@nestjs/core', 'rxjs', 'ioredis'] },
      build: {
        ssr: join(folder, `${name}.mjs`),
        outDir: join(folder, 'bundles'),
        emptyOutDir: false,
        minify: true,
        rolldownOptions: { output: { entryFileNames: `${name}.mjs` } },
      },
    });
  }
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

function entryOf(copy: string, entry = 'index.js'): string {
  return join(copy, 'dist/esm', entry);
}

/** The warnings of a process that loads these modules one after the other. */
async function warningsOf(...modules: string[]): Promise<string[]> {
  const load = (module: string) => `await import('${module}').then(({ noteCopy }) => noteCopy?.());`;
  const script = `import 'reflect-metadata'; ${modules.map(load).join(' ')}`;
  const { stderr } = await run(process.execPath, ['--input-type=module', '--eval', script], { cwd: folder });
  return stderr.split('\n').filter((line) => line.includes('NEST_REDIS_LOCK'));
}

it('a second copy of the package in the process causes one warning, which names the places of both [G558]', async () => {
  const warnings = await warningsOf(entryOf(first), entryOf(second), entryOf(second, 'schedule/index.js'));
  expect(warnings).toHaveLength(1);
  expect(warnings[0]).toContain('[NEST_REDIS_LOCK_TWICE] Warning: This process has loaded nest-redis-lock twice');
  expect(warnings[0]).toContain(`from ${join(first, 'dist/esm')} and ${join(second, 'dist/esm')}`);
  expect(warnings[0]).toContain('npm ls nest-redis-lock');
});

it('a second copy causes the warning even if an ES module application exits at once because its start fails [G1033]', async () => {
  const main = join(folder, 'failing.mjs');
  writeFileSync(
    main,
    `import 'reflect-metadata'; import '${entryOf(first)}'; import '${entryOf(second)}'; process.exit(1);`,
  );
  const failed = run(process.execPath, [main]);
  await expect(failed).rejects.toMatchObject({
    code: 1,
    stderr: expect.stringContaining('[NEST_REDIS_LOCK_TWICE] Warning: This process has loaded nest-redis-lock twice'),
  });
});

it('one copy causes no warning, whichever entry points load it, even if a test runner loads it again', async () => {
  const module = join(first, 'dist/esm/nest/injection/copies.js');
  const entries = ['index.js', 'schedule/index.js', 'testing/index.js'].map((entry) => entryOf(first, entry));
  expect(await warningsOf(...entries, `${module}?v=1`, `${module}?v=2`)).toEqual([]);
});

it('a second copy is found where one of them is bundled, and where both are in one bundle', async () => {
  const bundle = (name: string) => join(folder, 'bundles', `${name}.mjs`);
  const [one, within] = await Promise.all([warningsOf(bundle('one'), entryOf(second)), warningsOf(bundle('both'))]);
  expect(one).toEqual([expect.stringMatching(`from ${bundle('one')}:.* and ${join(second, 'dist/esm')}`)]);
  expect(within).toEqual([expect.stringContaining(`from ${bundle('both')}:`)]);
});

it('a copy whose place is unknown causes no warning and no error', async () => {
  const script = `Error.stackTraceLimit = 0; Object.freeze(Error); await import('${entryOf(first)}');`;
  await run(process.execPath, ['--input-type=module', '--eval', `import 'reflect-metadata'; ${script}`], {
    cwd: folder,
  });
});
