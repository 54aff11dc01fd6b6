import { LockOptionsError } from '../../api/errors.js';

/**
 * Refuses a decorator that is written without its parentheses: then what should make the decorator is called as one, and what it
 * returns is thrown away, so it would do nothing. Only a compiler that checks types sees that.
 *
 * @param decorator for the message
 * @param example the decorator as it should be written
 * @param given all arguments of the call
 * @throws LockOptionsError when these are the arguments of a decorator, of either kind
 */
export function refuseBareUse(decorator: string, example: string, given: readonly unknown[]): void {
  if (!isDecoratorCall(given)) return;
  throw new LockOptionsError(
    `${decorator} was used without parentheses on ${placeOf(given)}, and would do nothing there. ` +
      `Write ${example}, with parentheses.`,
  );
}

function isDecoratorCall(given: readonly unknown[]): boolean {
  const [target, second, third] = given;
  if (kindOf(second) !== undefined) return true; // (member, context): a standard decorator
  if (typeof target !== 'function' && !isPrototype(target)) return false;
  if (typeof third === 'number') return true; // (target, method, index): of a parameter
  if (given.length === 1) return isClass(target); // a key function is one, too
  return typeof second === 'string' || typeof second === 'symbol'; // (target, member, descriptor)
}

/** The kind of member in the context of a standard decorator. */
function kindOf(context: unknown): string | undefined {
  if (typeof context !== 'object' || context === null) return undefined;
  const { kind } = context as { kind?: unknown };
  return typeof kind === 'string' ? kind : undefined;
}

/** Instances, such as a Date for a cron job, have no `constructor` of their own. */
function isPrototype(target: unknown): target is object {
  return typeof target === 'object' && target !== null && Object.hasOwn(target, 'constructor');
}

/** Only the `prototype` of a class cannot be replaced. */
function isClass(target: unknown): boolean {
  return Object.getOwnPropertyDescriptor(target, 'prototype')?.writable === false;
}

function placeOf([target, second]: readonly unknown[]): string {
  if (kindOf(second) !== undefined) return String((second as { name?: string | symbol }).name ?? kindOf(second));
  const owner = (typeof target === 'function' ? target : (target as object).constructor) as { name: string };
  const member = second as string | symbol | undefined;
  return member === undefined ? owner.name : `${owner.name}.${String(member)}`;
}
