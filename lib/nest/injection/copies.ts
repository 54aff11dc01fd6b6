import { fileURLToPath } from 'node:url';

/** The places of the copies of this package in this process. All copies and all versions share this set. */
const COPIES = Symbol.for('nest-redis-lock:copies');

/**
 * Registers this copy of the package, and warns if there is another one: the decorators of one copy do not find the lock service of
 * the other. A copy that is loaded again from the same place, as test runners do, counts as the same.
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
  // Not process.emitWarning(): the start may fail because of it, and a process that exits at once emits no warning.
  process.stderr.write(
    `[NEST_REDIS_LOCK_TWICE] Warning: This process has loaded nest-redis-lock twice, from ${shown(first)} and ${shown(here)}. ` +
      'Decorators of one copy do not find the locks of the other. Run npm ls nest-redis-lock to see why, and keep one: npm dedupe, or the same version ' +
      'everywhere. If both are in one folder, import and require load different builds: use one of them.\n',
  );
}

/**
 * Returns the file, line and column of this code; undefined if they are unknown. Two copies in one bundle differ in line or column.
 * A stack works in ES modules, in CommonJS and in bundles; `import.meta` and `__filename` do not.
 */
function placeOfThisCode(): string | undefined {
  const stack: unknown = new Error().stack; // Error.prepareStackTrace may return anything
  // The first line like `at placeOfThisCode (file:///app/copies.js?v=1:30:26)`; a bundler or a test runner adds the query.
  const frame = /^ +at (?:.*? \()?(.+?)(?:\?.*)?(:\d+:\d+)\)?$/m.exec(typeof stack === 'string' ? stack : '');
  if (!frame) return undefined;
  const [, file, position] = frame as unknown as [string, file: string, position: string];
  return (file.startsWith('file:') ? fileURLToPath(file) : file) + position;
}

/** Shortens a place to the folder of the build; keeps a place in a bundle. */
function shown(place: string): string {
  return /^(.*[\\/]dist[\\/](?:esm|cjs))[\\/]nest[\\/]injection[\\/]copies\.js:/.exec(place)?.[1] ?? place;
}
