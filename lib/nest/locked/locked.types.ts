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
 * Runs **without a lock**, as the store cannot be reached: other processes may run it, or the method, at the same time. It gets the
 * error that the call would have rejected with, no lock, and what the method would have got.
 */
export type WithoutLock<Args extends unknown[], Value> = (error: LockUnavailableError, ...args: Args) => Value;

type WayOut = 'throw' | 'skip';
/** What becomes of a call that others have refused the lock: a function answers it. */
export type OnContended<Args extends unknown[] = [], Value = never, Way = WayOut> = Way | ((...args: Args) => Value);
/** What becomes of a call while the store cannot be reached. */
export type OnUnavailable<Args extends unknown[] = [], Value = never, Way = WayOut> = Way | WithoutLock<Args, Value>;

/** What `@Locked` and `@Limited` have beside the options of a call. */
export interface LockedMethodOptions<Contended, Unavailable> {
  /**
   * What to do if others kept the lock, or too many of the permits, for the whole `waitMs`: `throw` a `LockContendedError`; `skip` the call, which
   * then returns `undefined` (so the method's return type must allow that); or call a function and return its value. The
   * function gets the arguments of the method, or the `ExecutionContext` if the key comes from the request.
   * @default 'throw'
   */
  onContended?: Contended;
  /**
   * What to do if the store cannot be reached, or does not answer in time, so that the call has no lock: `throw` the
   * `LockUnavailableError`; `skip` the call, which then returns `undefined` (so the method's return type must allow that); or call a
   * function and return its value. **The function runs without a lock**: let it answer from a cache, or throw an error of your own, but
   * not do the work. It gets the error, and then the arguments of the method, or the `ExecutionContext` if the key comes from the
   * request. Errors of the method itself pass through, also a `LockUnavailableError` of another lock that it asked for; so do losses, and
   * the refusal of an application that closes.
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

/** A method that can be locked: its end can be awaited. */
export type LockableMethod = (...args: never) => Promise<unknown> | Observable<unknown>;

/** Its result is written out, so that the compiler's errors say what may be returned. */
type KeyFunction = (...args: never) => string | readonly string[];

/**
 * What `@Locked` takes as its key or keys: a text or template, an array of these, `fromContext(…)`, or a function of the
 * method's arguments.
 */
export type LockedKey = string | readonly string[] | ContextKey | KeyFunction;

/** Each text of an array; what is no array stays as it is. */
type Each<Key extends LockedKey> = Key extends readonly (infer Text extends string)[] ? Text : Key;

/** What decides of what a key is made: in an array its templates, if it has any, as static texts mix with either kind. */
type Deciding<Key extends LockedKey> = Key extends readonly (infer Text extends string)[]
  ? Extract<Text, RequestTemplate | ArgumentTemplate> extends never
    ? Text
    : Extract<Text, RequestTemplate | ArgumentTemplate>
  : Key;

/** The arguments of an `onContended` function, as far as the text of the key is known to the compiler. */
export type AnswerArgs<Key extends LockedKey, Args extends unknown[]> = ArgsFor<
  Deciding<Key>,
  Args,
  Args | [context: ExecutionContext]
>;

/** Those of an `onUnavailable` function, behind the error. */
export type OutageArgs<Key extends LockedKey, Args extends unknown[]> = ArgsFor<Deciding<Key>, Args, unknown[]>;

/** @typeParam NotKnown those beside a text that is not known */
type ArgsFor<Key, Args extends unknown[], NotKnown extends unknown[]> = Key extends RequestTemplate | ContextKey
  ? [context: ExecutionContext]
  : Key extends ArgumentTemplate | KeyFunction
    ? Args
    : IsLiteral<Key> extends true
      ? Args
      : NotKnown;

/** `string`, and what has one in it, can be a key of any set of texts. */
type IsLiteral<Key> = Key extends string ? (Record<never, 1> extends Record<Key, 1> ? false : true) : false;

/** Whether a function can be called with the arguments of the method; left open where the method takes a `T` of its class. */
type Takes<Method extends LockableMethod, Args extends unknown[]> = ((...args: Args) => void) extends (
  ...args: Parameters<Method>
) => void
  ? true
  : false;

/** Whether the method is `any`: the one that the compiler compares with a `MethodDecorator`. */
type IsAny<Method> = 0 extends 1 & Method ? true : false;

/** `unknown`, which all methods fit, or what is wrong. An answer that was left open counts as a yes. */
type Unless<Method extends LockableMethod, Fits extends boolean, Reason extends string> =
  IsAny<Method> extends true ? unknown : Fits extends false ? { error: Reason } : unknown;

/** The question that was left open, as one that the compiler answers from the constraint of `T`. */
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
    : Unless<Method, [Unmade<Key, Parameters<Method>>] extends [never] ? true : false, Unmade<Key, Parameters<Method>>>;

/** Why the templates of a key cannot be filled from the arguments; never: they can. */
type Unmade<Key extends LockedKey, Args extends unknown[]> = [MissingIn<Key, Args>] extends [never]
  ? [PathWithoutValue<Key, Args>] extends [never]
    ? never
    : `the parameter has no property for {${PathWithoutValue<Key, Args>}} of the key`
  : `the method has no parameter for {${MissingIn<Key, Args>}} of the key`;

/** The indexes in the text of a key, as far as it is known, that no parameter has. */
type MissingIn<Key extends LockedKey, Args extends unknown[]> = number extends Args['length']
  ? never
  : Exclude<IndexIn<Each<Key>>, keyof Args>;

type IndexIn<Key> = Key extends `${string}{${infer Path}}${infer Rest}` ? IndexOf<Path> | IndexIn<Rest> : never;

type IndexOf<Path extends string> = Path extends `${bigint}`
  ? Path
  : Path extends `${infer Index extends `${bigint}`}.${string}`
    ? Index
    : never;

/** The paths in the text of a key whose first name is no property of the parameter: one level deep. */
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

/** Of a union one member is enough. What is not known to the compiler may have it. */
type HasProperty<Value, Name extends string> = unknown extends Value
  ? true
  : Value extends unknown
    ? Name extends keyof Value | (number extends keyof Value ? `${number}` : never)
      ? true
      : object extends Value
        ? true
        : false
    : never;

/** What the compiler knows of a function that answers a refused call, and of the words that stand for one. */
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

/** A stream that is skipped ends at once. */
type FittingSkip<Method extends LockableMethod, Way extends WayOut> = [Way] extends ['skip']
  ? ReturnType<Method> extends Observable<unknown>
    ? unknown
    : undefined extends ValueOf<Method>
      ? unknown
      : { error: 'a call that is skipped returns undefined: let the method return that, too' }
  : unknown;

type ValueOf<Method extends LockableMethod> =
  ReturnType<Method> extends Observable<infer Value> ? Value : Awaited<ReturnType<Method>>;

/** Fits all methods. From here the compiler knows what an unannotated function takes: what the method takes. */
type Inferred<Args extends unknown[]> = [Args] extends [unknown[]]
  ? unknown
  : { set?: (method: (...args: Args) => never) => void };

/**
 * Fits methods that return a Promise or an Observable, have the parameters that the key uses, and can return what `onContended`
 * and `onUnavailable` return. In a decorator composed of others, and as a `MethodDecorator`, it fits all methods.
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
