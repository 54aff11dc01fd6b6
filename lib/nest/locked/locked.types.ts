import type { ExecutionContext } from '@nestjs/common';
import type { Observable } from 'rxjs';
import type { LockUnavailableError } from '../../api/errors.js';
import type {
  HoldOptions,
  LabelOptions,
  LeaseOptions,
  LossOptions,
  ModeOptions,
  ReleaseOptions,
  ScopeOptions,
  WithPolicy,
} from '../../api/options.js';
import type { ArgumentTemplate, RequestTemplate } from '../../core/keys/key.js';
import type { FitsMethodDecorator } from '../injection/method-decorator.js';
import type { ContextKey } from './locked-method.js';

/**
 * A function that runs **without a lock**, because the store cannot be reached: other processes may run it, or the method, at the
 * same time. It gets the error of the call, and then the arguments of the method.
 */
export type WithoutLock<Args extends unknown[], Value> = (error: LockUnavailableError, ...args: Args) => Value;

type WayOut = 'throw' | 'skip';
/** What happens to a call if others hold the lock; a function returns its value. */
export type OnContended<Args extends unknown[] = [], Value = never, Way = WayOut> = Way | ((...args: Args) => Value);
/** What happens to a call if the store cannot be reached. */
export type OnUnavailable<Args extends unknown[] = [], Value = never, Way = WayOut> = Way | WithoutLock<Args, Value>;

/** Options of `@Locked` and `@Limited` that other calls do not have. */
export interface LockedMethodOptions<Contended, Unavailable> {
  /**
   * What to do if others held the lock, or too many permits, for the whole `waitMs`. `throw` throws a `LockContendedError`. `skip`
   * returns `undefined`, so the method's return type must allow that. A function runs instead, and its value is returned. It gets the
   * arguments of the method, or the `ExecutionContext` if the key comes from the request.
   * @default 'throw'
   */
  onContended?: Contended;
  /**
   * What to do if the store cannot be reached or does not answer in time. `throw` throws the `LockUnavailableError`. `skip` returns
   * `undefined`, so the method's return type must allow that. A function runs instead, and its value is returned. **The function runs
   * without a lock**: let it answer from a cache, or throw an error of your own, but never do the work. It gets the error, and then
   * the arguments of the method, or the `ExecutionContext` if the key comes from the request. This option does not cover errors of
   * the method itself, even a `LockUnavailableError` for another lock, nor losses, nor calls while the application closes.
   * @default 'throw'
   */
  onUnavailable?: Unavailable;
  /**
   * The `name` of the registration that keeps the lock.
   * @default the registration without a name
   */
  registration?: string;
}

/** Options of `@Locked`. */
export interface LockedOptions<Contended = OnContended, Unavailable = OnUnavailable>
  extends
    LeaseOptions,
    HoldOptions,
    LabelOptions,
    LossOptions,
    ModeOptions,
    ReleaseOptions,
    ScopeOptions,
    WithPolicy,
    LockedMethodOptions<Contended, Unavailable> {}

/** A method that can be locked: its result shows when it has ended. */
export type LockableMethod = (...args: never) => Promise<unknown> | Observable<unknown>;

/** The return type is written out so that compiler errors show it. */
type KeyFunction = (...args: never) => string | readonly string[];

/**
 * The key or keys of `@Locked`: a string or template, an array of these, `fromContext(…)`, or a function of the method's
 * arguments.
 */
export type LockedKey = string | readonly string[] | ContextKey | KeyFunction;

/** The element type of an array; other types unchanged. */
type Each<Key extends LockedKey> = Key extends readonly (infer Text extends string)[] ? Text : Key;

/** The part of a key that decides whether it uses arguments or the request: the templates of an array, if it has any. */
type Deciding<Key extends LockedKey> = Key extends readonly (infer Text extends string)[]
  ? Extract<Text, RequestTemplate | ArgumentTemplate> extends never
    ? Text
    : Extract<Text, RequestTemplate | ArgumentTemplate>
  : Key;

/** The arguments of an `onContended` function, as far as the compiler knows the text of the key. */
export type AnswerArgs<Key extends LockedKey, Args extends unknown[]> = ArgsFor<
  Deciding<Key>,
  Args,
  Args | [context: ExecutionContext]
>;

/** The arguments of an `onUnavailable` function, after the error. */
export type OutageArgs<Key extends LockedKey, Args extends unknown[]> = ArgsFor<Deciding<Key>, Args, unknown[]>;

/** @typeParam NotKnown the arguments if the compiler does not know the text */
type ArgsFor<Key, Args extends unknown[], NotKnown extends unknown[]> = Key extends RequestTemplate | ContextKey
  ? [context: ExecutionContext]
  : Key extends ArgumentTemplate | KeyFunction
    ? Args
    : IsLiteral<Key> extends true
      ? Args
      : NotKnown;

/** Whether the type is a string literal: `string`, and templates that contain it, are not. */
type IsLiteral<Key> = Key extends string ? (Record<never, 1> extends Record<Key, 1> ? false : true) : false;

/** Whether a function can be called with the arguments of the method. Unresolved if the method takes a type parameter of its class. */
type Takes<Method extends LockableMethod, Args extends unknown[]> = ((...args: Args) => void) extends (
  ...args: Parameters<Method>
) => void
  ? true
  : false;

/** Whether the method is `any`, as when the compiler compares the decorator with `MethodDecorator`. */
type IsAny<Method> = 0 extends 1 & Method ? true : false;

/** `unknown`, which all methods fit, or the error. An unresolved condition counts as true. */
type Unless<Method extends LockableMethod, Fits extends boolean, Reason extends string> =
  IsAny<Method> extends true ? unknown : Fits extends false ? { error: Reason } : unknown;

/** The unresolved condition in a form that the compiler checks by the constraint of the type parameter. */
type Assignable<Fits extends boolean, Args extends unknown[]> = Fits extends true
  ? unknown
  : { set?: (method: (...args: Args) => never) => void };

type FittingArgs<Method extends LockableMethod, Args extends unknown[], Reason extends string> = Unless<
  Method,
  Takes<Method, Args>,
  Reason
> &
  Assignable<Takes<Method, Args>, Args>;

type FittingKey<Method extends LockableMethod, Key extends LockedKey> = [Key] extends [never]
  ? unknown // the types were written out: Locked<[order: Order]>(…)
  : [Key] extends [KeyFunction]
    ? FittingArgs<Method, Parameters<Key>, 'the key function takes other parameters than the method'>
    : Unless<
        Method,
        [KeyProblem<Key, Parameters<Method>>] extends [never] ? true : false,
        KeyProblem<Key, Parameters<Method>>
      >;

/** The reason why the arguments cannot fill the templates of a key; `never` if they can. */
type KeyProblem<Key extends LockedKey, Args extends unknown[]> = [MissingIn<Key, Args>] extends [never]
  ? [PathWithoutValue<Key, Args>] extends [never]
    ? never
    : `the parameter has no property for {${PathWithoutValue<Key, Args>}} of the key`
  : `the method has no parameter for {${MissingIn<Key, Args>}} of the key`;

/** The indexes in the text of a key, as far as it is known, for which the method has no parameter. */
type MissingIn<Key extends LockedKey, Args extends unknown[]> = number extends Args['length']
  ? never
  : Exclude<IndexIn<Each<Key>>, keyof Args>;

type IndexIn<Key> = Key extends `${string}{${infer Path}}${infer Rest}` ? IndexOf<Path> | IndexIn<Rest> : never;

type IndexOf<Path extends string> = Path extends `${bigint}`
  ? Path
  : Path extends `${infer Index extends `${bigint}`}.${string}`
    ? Index
    : never;

/** The paths in the text of a key whose first name is not a property of the parameter. Deeper names are not checked. */
type PathWithoutValue<Key extends LockedKey, Args extends unknown[]> = WithoutValue<PathIn<Each<Key>>, Args>;

type PathIn<Key> = Key extends `${string}{${infer Path}}${infer Rest}` ? Path | PathIn<Rest> : never;

type WithoutValue<Path, Args extends unknown[]> = Path extends `${infer Index extends `${bigint}`}.${infer Names}`
  ? Index extends keyof Args
    ? true extends HasProperty<Args[Index], FirstOf<Names>>
      ? never
      : Path
    : never
  : never;

type FirstOf<Names extends string> = Names extends `${infer First}.${string}` ? First : Names;

/** Whether a value may have the property: one member of a union is enough, and so is an unknown type. */
type HasProperty<Value, Name extends string> = unknown extends Value
  ? true
  : Value extends unknown
    ? Name extends keyof Value | (number extends keyof Value ? `${number}` : never)
      ? true
      : object extends Value
        ? true
        : false
    : never;

/** What the compiler knows about the reaction to a refused call: the arguments and the value of a function, or the word. */
type Refused = [args: unknown[], value: unknown, way: WayOut];

type FittingAnswer<
  Method extends LockableMethod,
  Key extends LockedKey,
  Answer extends Refused,
  Option extends 'onContended' | 'onUnavailable',
> =
  Awaited<Answer[1]> extends ValueOf<Method>
    ? [Deciding<Key>] extends [RequestTemplate | ContextKey]
      ? unknown
      : FittingArgs<Method, Answer[0], `${Option} takes other parameters than the method`>
    : { error: `${Option} returns another type than the method` };

/** A skipped stream fits in any case: it ends without a value. */
type FittingSkip<Method extends LockableMethod, Way extends WayOut> = [Way] extends ['skip']
  ? ReturnType<Method> extends Observable<unknown>
    ? unknown
    : undefined extends ValueOf<Method>
      ? unknown
      : { error: 'a skipped call returns undefined: add undefined to the return type of the method' }
  : unknown;

type ValueOf<Method extends LockableMethod> =
  ReturnType<Method> extends Observable<infer Value> ? Value : Awaited<ReturnType<Method>>;

/** Fits all methods. From it, the compiler infers the parameters of an unannotated function from the parameters of the method. */
type Inferred<Args extends unknown[]> = [Args] extends [unknown[]]
  ? unknown
  : { set?: (method: (...args: Args) => never) => void };

/**
 * Fits methods that return a Promise or an Observable, have the parameters that the key uses, and can return what `onContended`
 * and `onUnavailable` return. Inside a composed decorator, and as a `MethodDecorator`, it fits all methods.
 */
export interface LockedDecorator<
  Key extends LockedKey,
  KeyArgs extends unknown[],
  Contended extends Refused,
  Unavailable extends Refused,
> extends FitsMethodDecorator {
  <Method extends LockableMethod>(
    target: object,
    name: string | symbol,
    descriptor: TypedPropertyDescriptor<Method> &
      FittingKey<Method, Key> &
      FittingAnswer<Method, Key, Contended, 'onContended'> &
      FittingSkip<Method, Contended[2]> &
      FittingAnswer<Method, Key, Unavailable, 'onUnavailable'> &
      FittingSkip<Method, Unavailable[2]> &
      Inferred<KeyArgs>,
  ): void;
}
