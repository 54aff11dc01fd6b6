import type { ModulesContainer } from '@nestjs/core';
import { LockOptionsError } from '../../api/errors.js';

/** What a decorator of this library records about its method, for the checks at the start of the application. */
export interface MethodNote {
  /** For messages: `@Locked`. */
  readonly decorator: string;
  /** What happens to an override without the decorator; undefined if an override needs no decorator. */
  readonly override?: 'runs without' | 'is never called';
  /** Whether each call takes a lock or permits, with a key that can use the arguments. */
  readonly locksCalls?: true;
  /** Whether the decorator needs a `holdMs`. */
  readonly keepsLock?: true;
  /** The templates of keys that use the request. */
  readonly requestKeys?: readonly RequestKey[];
  /** The provider that calls the method, and the module to import for it. */
  readonly needs?: { readonly provider: { readonly name: string }; readonly module: string };
}

/** A template like `order:{params.id}`. */
interface RequestKey {
  readonly template: string;
  /** The contents of its braces: `params.id`. */
  readonly sources: readonly string[];
}

/** A declaration of a method in a class. */
export interface Declared {
  readonly property: PropertyKey;
  /** `Class.method`, for messages. */
  readonly name: string;
  /** Undefined for a getter or another value. */
  readonly method?: object;
}

/** A provider or controller of an application, with its methods. */
export interface Host {
  readonly module: NestModule;
  readonly wrapper: NestHost;
  readonly prototype: object;
  /** Each method, followed by the methods that it overrides. */
  readonly methods: readonly (readonly [Declared, ...Declared[]])[];
}

/** A module of the application, as Nest keeps it. */
export type NestModule = ModulesContainer extends Map<string, infer Value> ? Value : never;

/** A provider or controller of a module, as Nest keeps it. */
type NestHost = NestModule['providers'] extends Map<unknown, infer Value> ? Value : never;

const NOTES = Symbol.for('nest-redis-lock:notes');

/** @throws LockOptionsError for `@NotLocked` together with `@Locked` or `@Limited` */
export function noteOn(method: object, note: MethodNote): void {
  const notes = [...notesOf(method), note];
  const locking = notes.find(({ locksCalls }) => locksCalls);
  if (locking && notes.some(({ decorator }) => decorator === '@NotLocked')) {
    throw new LockOptionsError(`the method is both ${locking.decorator} and @NotLocked: remove one of them.`);
  }
  Reflect.defineMetadata(NOTES, notes, method);
}

export function notesOf(method: object): readonly MethodNote[] {
  return (Reflect.getOwnMetadata(NOTES, method) as MethodNote[] | undefined) ?? [];
}

/** Returns all objects of an application that can have decorated methods, including guards, interceptors, pipes and filters. */
export function hostsOf(modules: ModulesContainer): Host[] {
  return [...modules.values()].flatMap((module) =>
    [...module.providers.values(), ...module.controllers.values(), ...module.injectables.values()].flatMap(
      (wrapper) => {
        const prototype = prototypeOf(wrapper);
        return prototype ? { module, wrapper, prototype, methods: methodsOf(prototype) } : [];
      },
    ),
  );
}

/** Returns the prototype of a provider or controller, if it is an object. */
function prototypeOf(host: NestHost): object | undefined {
  const prototype: unknown = host.isNotMetatype
    ? typeof host.instance === 'object' && host.instance !== null && Reflect.getPrototypeOf(host.instance)
    : host.metatype?.prototype;
  return typeof prototype === 'object' && prototype !== null ? prototype : undefined;
}

/** Reads no properties of instances: they may be mocks, or have getters that throw. */
function methodsOf(prototype: object): [Declared, ...Declared[]][] {
  const methods = new Map<PropertyKey, [Declared, ...Declared[]]>();
  let owner: object | null = prototype;
  for (; owner !== null && owner !== Object.prototype; owner = Reflect.getPrototypeOf(owner)) {
    const type: unknown = Reflect.getOwnPropertyDescriptor(owner, 'constructor')?.value;
    const typeName = typeof type === 'function' ? type.name : 'Object';
    for (const property of Reflect.ownKeys(owner)) {
      if (property === 'constructor') continue;
      const value: unknown = Reflect.getOwnPropertyDescriptor(owner, property)?.value;
      const method = typeof value === 'function' ? value : undefined;
      const declared: Declared = { property, name: `${typeName}.${String(property)}`, method };
      const overriding = methods.get(property);
      if (overriding) overriding.push(declared);
      else methods.set(property, [declared]);
    }
  }
  return [...methods.values()];
}
