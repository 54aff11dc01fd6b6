import { execFileSync } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transformSync } from 'rolldown/utils';

const root = fileURLToPath(new URL('../..', import.meta.url));

/**
 * Compiles `lib` for processes that run without vitest, once for each state of the sources, and without type checks.
 * Two processes may do this at once: each works in its own folder and publishes it by an atomic rename.
 * @returns the folder of the compiled modules
 */
export function compileLibrary(type: 'module' | 'commonjs' = 'module'): string {
  const lib = join(root, 'lib');
  const files = readdirSync(lib, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
  const sources = files.sort().map((file) => [file, readFileSync(join(lib, file), 'utf8')]);
  const state = createHash('sha1')
    .update(JSON.stringify([type, HELPERS, sources]))
    .digest('hex')
    .slice(0, 12);
  const cache = join(root, 'node_modules/.cache/nest-redis-lock');
  mkdirSync(cache, { recursive: true });
  if (readdirSync(cache).includes(state)) return join(cache, state);

  const work = join(cache, `${state}-${process.pid}`);
  if (type === 'commonjs') compileToCommonJs(lib, work);
  else for (const file of files) compileModule(join(lib, file), join(work, file.replace(/\.ts$/, '.js')));
  writeFileSync(join(work, 'package.json'), JSON.stringify({ type }));
  try {
    renameSync(work, join(cache, state));
  } catch {
    rmSync(work, { recursive: true }); // another process was first
  }
  return join(cache, state);
}

/** Compiles a module as vitest does: a hundred times as fast as TypeScript. */
export function compileModule(file: string, target: string): void {
  const { code, errors } = transformSync(file, readFileSync(file, 'utf8'), {
    target: 'es2022',
    tsconfig: false,
    decorator: { legacy: true, emitDecoratorMetadata: true },
    helpers: { mode: 'External' },
  });
  if (errors.length > 0) throw new Error(`${file}: ${errors[0]!.message}`);
  mkdirSync(dirname(target), { recursive: true });
  writeFileSync(target, code.includes('babelHelpers.') ? HELPERS + code : code);
}

const HELPERS = `import * as tslib from 'tslib';
const babelHelpers = { decorate: tslib.__decorate, decorateMetadata: tslib.__metadata, decorateParam: tslib.__param };
`;

/** The other compiler knows only modules. */
function compileToCommonJs(lib: string, target: string): void {
  const settings = ['--noCheck', '--declaration', 'false', '--singleThreaded', '--outDir', target];
  execFileSync(join(root, 'node_modules/.bin/tsc'), ['-p', join(lib, 'tsconfig.cjs.json'), ...settings]);
}
