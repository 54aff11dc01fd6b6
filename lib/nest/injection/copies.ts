import { fileURLToPath } from 'node:url';

/** Where the copies of this package are that this process has loaded. All copies, and all versions, share it. */
const COPIES = Symbol.for('nest-redis-lock:copies');

/**
 * Notes that this copy of the package is loaded, and warns if there is another one: a lock service of one copy is not found by
 * the decorators of the other. A copy that is loaded anew from the same place, as by a test runner, is the same one.
 */
export function noteCopy(): void {
  const here = placeOfThisCode();
  if (here === undefined) return;
  const shared = globalThis as { [COPIES]?: Set<string> };
  const copies = (shared[COPIES] ??= new Set());
  const [first] = copies;
  if (copies.has(here)) return;
  copies.add(here);
  if (first === undefined) return;
  // At once: the start may fail because of it, and a process that ends then emits no warning.
  process.stderr.write(
    `[NEST_REDIS_LOCK_TWICE] Warning: This process has loaded nest-redis-lock twice, from ${shown(first)} and ${shown(here)}. ` +
      'Decorators of one copy do not find the locks of the other. Run npm ls nest-redis-lock to see why, and keep one: npm dedupe, or the same version ' +
      'everywhere. Where both are in one folder, import and require load different builds: use one of them.\n',
  );
}

/**
 * The file, line and column of this code; undefined if they cannot be known. Two copies within one bundle differ in the last. The
 * stack says it in ES modules, in CommonJS and in bundles, where `import.meta` and `__filename` each do in some only.
 */
function placeOfThisCode(): string | undefined {
  const stack: unknown = new Error().stack; // applications may make anything of it
  // The first line like `at placeOfThisCode (file:///app/copies.js?v=1:30:26)`; a bundler or a test runner adds the query.
  const frame = /^ +at (?:.*? \()?(.+?)(?:\?.*)?(:\d+:\d+)\)?$/m.exec(typeof stack === 'string' ? stack : '');
  if (!frame) return undefined;
  const [, file, position] = frame as unknown as [string, file: string, position: string];
  return (file.startsWith('file:') ? fileURLToPath(file) : file) + position;
}

/** The folder of the build in a package, or the place in a bundle. */
function shown(place: string): string {
  return /^(.*[\\/]dist[\\/](?:esm|cjs))[\\/]nest[\\/]injection[\\/]copies\.js:/.exec(place)?.[1] ?? place;
}
