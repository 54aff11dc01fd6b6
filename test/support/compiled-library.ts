import { createHash } from 'node:crypto';
import { mkdirSync, readdirSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import ts from 'typescript';

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
    .update(JSON.stringify([type, sources]))
    .digest('hex')
    .slice(0, 12);
  const cache = join(root, 'node_modules/.cache/nest-redis-lock');
  mkdirSync(cache, { recursive: true });
  if (readdirSync(cache).includes(state)) return join(cache, state);

  const work = join(cache, `${state}-${process.pid}`);
  for (const [file, source] of sources) {
    const target = join(work, file.replace(/\.ts$/, '.js'));
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, compile(source, type));
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
  return compile(readFileSync(file, 'utf8'), 'module');
}

function compile(source: string, type: 'module' | 'commonjs'): string {
  const module = type === 'module' ? ts.ModuleKind.ESNext : ts.ModuleKind.CommonJS;
  return ts.transpileModule(source, { compilerOptions: { ...compilerOptions, module } }).outputText;
}

const compilerOptions: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2022,
  experimentalDecorators: true,
  emitDecoratorMetadata: true,
};
