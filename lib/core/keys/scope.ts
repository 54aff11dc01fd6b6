import { LockKeyError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { checkKey, keyPart } from './key.js';

const SCOPED = /^@([^/]+)\//;

/**
 * Puts a key into a scope, such as a tenant: `@acme/order:1`. Each "/" of the scope is escaped, so that two scopes never share a key. A key that
 * already has this scope stays unchanged: it may come from a lock or an error.
 * @param read returns the scope; null: the key has none. May throw
 * @param status see `checkKey`
 * @throws LockKeyError like `checkKey`; also for a scope that is undefined or empty, has no string form, or cannot be read
 */
export function scopedKey(read: () => unknown, key: unknown, status?: 400 | 500): string {
  checkKey(key, status);
  const refuse = (problem: string, cause?: unknown) =>
    new LockKeyError(`The scope of the key ${quoted(key)} ${problem} For a call without a scope, return null.`, 500, {
      cause,
    });
  let scope: unknown;
  try {
    scope = read();
  } catch (cause) {
    throw refuse('could not be read. See the cause.', cause);
  }
  if (scope === null) return key;
  if (scope instanceof Promise) scope.catch(() => {}); // it is refused below, and its rejection must not end the process
  const prefix = `@${keyPart(() => scope, refuse).replaceAll('/', '%2F')}/`;
  if (key.startsWith(prefix)) return key;
  const scoped = prefix + key;
  checkKey(scoped, status);
  return scoped;
}

/** Finds an item by its key, or else by its key without the scope. @param find calls `fits` with the key of each item */
export function findByKey<T>(text: string, find: (fits: (key: string) => boolean) => T | undefined): T | undefined {
  return find((key) => key === text) ?? find((key) => splitScope(key).rest === text);
}

/** Splits a key into its scope, if it has one, and the rest. */
export function splitScope(key: string): { scope?: string; rest: string } {
  const [prefix, scope] = (key.startsWith('@') && SCOPED.exec(key)) || [];
  if (prefix === undefined || scope === undefined) return { rest: key };
  const unescaped = scope.replace(/%([0-9A-F]{2})/g, (_, hex: string) => String.fromCharCode(parseInt(hex, 16)));
  return { scope: unescaped, rest: key.slice(prefix.length) };
}
