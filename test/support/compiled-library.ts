import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { transformSync } from 'rolldown/utils';
import type ts from 'typescript';

const root = fileURLToPath(new URL('../..', import.meta.url));

/**
 * Compiles `lib` for processes that run without vitest, once for each state of the sources, and without type checks.
 * Two processes may do this at once: each works in its own folder and publishes it by an atomic rename.
 * @returns the folder of the compiled modules
 */
export function compileLibrary(type: 'module' | 'commonjs' = 'module'): string {
  const lib = join(root, 'lib');
  const files = readdirSync(lib, { recursive: true, encoding: 'utf8' }).filter((file) => file.endsWith('.ts'));
  const sources = files.sort().map((file) => [file, readFileSync(join(lib, file), 'utf8')] as const);
  const state = createHash('sha1')
    .update(JSON.stringify([type, HELPERS, sources]))
    .digest('hex')
    .slice(0, 12);
  const cache = join(root, 'node_modules/.cache/nest-redis-lock');
  mkdirSync(cache, { recursive: true });
  if (readdirSync(cache).includes(state)) return join(cache, state);

  const work = join(cache, `${state}-${process.pid}`);
  for (const [file, source] of sources) {
    const target = join(work, file.replace(/\.ts$/, '.js'));
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, type === 'module' ? compile(file, source) : compileToCommonJs(source));
  }
  writeFileSync(join(work, 'package.json'), JSON.stringify({ type }));
  try {
    renameSync(work, join(cache, state));
  } catch {
    rmSync(work, { recursive: true }); // another process was first
  }
  return join(cache, state);
}

/** A module of the tests, compiled in the same way. */
export function compileFile(file: string): string {
  return compile(file, readFileSync(file, 'utf8'));
}

/** As vitest compiles: a hundred times as fast as TypeScript. */
function compile(file: string, source: string): string {
  const { code, errors } = transformSync(file, source, {
    target: 'es2022',
    tsconfig: false,
    decorator: { legacy: true, emitDecoratorMetadata: true },
    helpers: { mode: 'External' },
  });
  if (errors.length > 0) throw new Error(`${file}: ${errors[0]!.message}`);
  return code.includes('babelHelpers.') ? HELPERS + code : code;
}

const HELPERS = `import * as tslib from 'tslib';
const babelHelpers = { decorate: tslib.__decorate, decorateMetadata: tslib.__metadata, decorateParam: tslib.__param };
`;

/** This alone needs TypeScript, which takes most of a second to load. */
function compileToCommonJs(source: string): string {
  const { ModuleKind, ScriptTarget, transpileModule } = createRequire(import.meta.url)('typescript') as typeof ts;
  const decorators = { experimentalDecorators: true, emitDecoratorMetadata: true };
  const compilerOptions = { target: ScriptTarget.ES2022, module: ModuleKind.CommonJS, ...decorators };
  return transpileModule(source, { compilerOptions }).outputText;
}
