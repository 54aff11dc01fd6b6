import { LockError, LockOptionsError } from '../../api/errors.js';

export type Method = (...args: unknown[]) => unknown;

/**
 * A second signature that nobody calls, since no decorator gets four arguments. With an overload, the compiler uses `any` for the
 * `Method` of the first signature when it compares the decorator with `MethodDecorator`, and so accepts it.
 */
export interface FitsMethodDecorator {
  (target: object, name: string | symbol, descriptor: never, never: never): void;
}

type AsyncMethod = (...args: never) => Promise<unknown>;

/** Fits methods whose Promise may resolve to undefined, since a skipped call returns undefined. */
export interface SkippingDecorator<Reason extends string> extends FitsMethodDecorator {
  <Method extends AsyncMethod>(
    target: object,
    name: string | symbol,
    descriptor: TypedPropertyDescriptor<Method> &
      (undefined extends Awaited<ReturnType<Method>>
        ? unknown
        : { error: `${Reason} returns undefined: add undefined to the return type of the method` }),
  ): void;
}

/** The method that a decorator was put on. */
export interface DecoratedMethod {
  readonly target: object;
  readonly property: string | symbol;
  readonly descriptor: PropertyDescriptor;
  readonly method: Method;
  /** `Class.method`, for messages. */
  readonly name: string;
}

/**
 * Makes a decorator, and refuses a use that would do nothing. All decorators of this library are made here.
 * @param label for messages: `@Fenced`
 * @param example how it should be written
 * @param given all arguments of the call that makes it
 * @throws LockOptionsError if it was written without parentheses, or was compiled to a standard decorator; for each error of
 *   `decorate`, with the name of the decorator and its place
 */
export function decorator<Place>(
  label: string,
  example: string,
  given: readonly unknown[],
  decorate: (target: object, member: string | symbol | undefined, place: Place | undefined) => void,
): (target: object, member?: string | symbol, place?: Place) => void {
  refuseWithoutParentheses(label, example, given);
  return (target, member, place) => {
    refuseStandard(label, member);
    try {
      decorate(target, member, place);
    } catch (error) {
      // An error of an inner decorator already names its place.
      if (!(error instanceof LockError) || error.cause instanceof LockError) throw error;
      throw new LockOptionsError(`${label} on ${nameOf(target, member)}: ${error.message}`, { cause: error });
    }
  };
}

/**
 * Makes a decorator for methods of instances.
 * @throws LockOptionsError like `decorator`; also if the decorated member is not such a method
 */
export function methodDecorator(
  label: string,
  example: string,
  given: readonly unknown[],
  decorate: (decorated: DecoratedMethod) => void,
): MethodDecorator {
  return decorator<PropertyDescriptor>(label, example, given, (target, property, descriptor) => {
    const method: unknown = descriptor?.value;
    let problem: string | undefined;
    if (property === undefined) problem = 'a class: put it on each of its methods';
    else if (typeof target === 'function') problem = 'static: use LockService there';
    else if (typeof method !== 'function') problem = 'not a method';
    if (problem)
      throw new LockOptionsError(`it belongs on a method of a class that Nest creates, and this is ${problem}.`);
    decorate({
      target,
      property: property!,
      descriptor: descriptor!,
      method: method as Method,
      name: nameOf(target, property),
    });
  });
}

/** Returns `Class.method`, or `Class` without a member. */
function nameOf(target: object, member: string | symbol | undefined): string {
  const { name } = typeof target === 'function' ? target : target.constructor;
  return member === undefined ? name : `${name}.${String(member)}`;
}

/**
 * Refuses a decorator without its parentheses, as in `@Locked`. Then the compiler calls the decorator's factory as if it were the
 * decorator, and ignores its result. Compilers that do not check types accept that.
 */
function refuseWithoutParentheses(label: string, example: string, given: readonly unknown[]): void {
  const [target, second] = given;
  let place: string;
  if (isContext(second)) place = String(second.name ?? second.kind);
  else if (isLegacyCall(given)) place = nameOf(target as object, second as string | symbol | undefined);
  else return;
  throw new LockOptionsError(
    `${label} was used without parentheses on ${place}, and would do nothing there. ` +
      `Write ${example}, with parentheses.`,
  );
}

/** Whether these are the arguments of an experimental decorator. */
function isLegacyCall(given: readonly unknown[]): boolean {
  const [target, second, third] = given;
  // Instances, such as a Date for a cron job, have no `constructor` of their own.
  const isPrototype = typeof target === 'object' && target !== null && Object.hasOwn(target, 'constructor');
  if (typeof target !== 'function' && !isPrototype) return false;
  if (typeof third === 'number') return true; // (target, method, index) of a parameter
  // One argument may be a class, or a key function. Only the `prototype` of a class cannot be replaced.
  if (given.length === 1) return Object.getOwnPropertyDescriptor(target, 'prototype')?.writable === false;
  return typeof second === 'string' || typeof second === 'symbol'; // (target, member, descriptor)
}

/**
 * Refuses standard decorators (TC39), which compilers emit without `experimentalDecorators`: they get the member itself and a
 * context. Nest needs the experimental kind, which gets a class and the name of a member.
 */
function refuseStandard(label: string, second: unknown): void {
  if (!isContext(second)) return;
  throw new LockOptionsError(
    `${label} on ${String(second.name ?? second.kind)} was compiled to a standard decorator, which Nest cannot read. ` +
      'Set "experimentalDecorators" and "emitDecoratorMetadata" to true in the compilerOptions of tsconfig.json ' +
      '(in .swcrc: "legacyDecorator" and "decoratorMetadata").',
  );
}

/** Whether the second argument of a decorator is the context of a standard one. */
function isContext(second: unknown): second is { name?: string | symbol; kind: string } {
  return typeof (second as { kind?: unknown } | null | undefined)?.kind === 'string';
}
