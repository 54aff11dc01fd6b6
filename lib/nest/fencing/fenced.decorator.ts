import { applyDecorators, createParamDecorator, SetMetadata, UseGuards, type ExecutionContext } from '@nestjs/common';
import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { KeyTemplate } from '../../core/keys/key.js';
import { checked, DAY_MS, fits, milliseconds, oneOf, invalidOption } from '../../core/options/checks.js';
import { noteOn } from '../injection/decorated-methods.js';
import { decorator } from '../injection/method-decorator.js';
import { MissingKeyWarnings } from '../locked/request-keys.js';
import { FENCED_PLAN, fencingClaimOf, FencingTokenGuard, type FencePlan } from './fencing-token.guard.js';

/** Options of `@FencingToken`. */
export interface FencingTokenOptions {
  /** Whether requests without the header may pass. @default false */
  optional?: boolean;
  /**
   * Maximum time that the token may be ahead of this machine's clock, in milliseconds, at least 1 000; otherwise the response is
   * 400. A token is the time of its grant by the clock of Redis, and a token from the future would lock out all later holders until
   * then. Choose more than the difference between the clocks of this machine and Redis. `Infinity` accepts all tokens: for a store
   * of your own whose tokens are not times.
   * @default 86400000: a day
   */
  maxAheadMs?: number;
}

/** Options of `@Fenced`. */
export interface FencedOptions extends FencingTokenOptions {
  /** Time limit of the store, in milliseconds, 1 to 60 000; after it the response is 503. @default 1000 */
  timeoutMs?: number;
}

/**
 * Accepts a request only with a `Fencing-Token` of this key that is at least as new as all tokens seen before. Put it on a
 * handler, or on a controller for all of its handlers.
 *
 * @param key the key of the lock, as the client locks it: `stock:{params.sku}`. A request that names another key is refused, because
 *   its token says nothing about this resource
 * @throws LockOptionsError when the class is defined: for a missing or invalid key, a key that uses arguments, or an invalid option
 */
export function Fenced(key: string, options?: FencedOptions): ClassDecorator & MethodDecorator;
export function Fenced(...given: [key: string, options?: FencedOptions]): ClassDecorator & MethodDecorator {
  const example = "@Fenced('stock:{params.sku}')";
  return decorator<PropertyDescriptor>('@Fenced', example, given, (target, member, descriptor) => {
    const [key, options = {}] = given;
    if (key === undefined) throw invalidOption('the key', key, 'a string like "stock:{params.sku}"');
    const plan = readPlan('@Fenced', key, options);
    applyDecorators(SetMetadata(FENCED_PLAN, plan), UseGuards(FencingTokenGuard))(target, member, descriptor);
    const method: unknown = descriptor?.value;
    if (typeof method !== 'function') return; // on a class
    const requestKeys = plan.template && [plan.template];
    noteOn(method, { decorator: '@Fenced', override: 'runs without', requestKeys });
  });
}

/**
 * Injects the fencing token of the request into a parameter, for use in the write itself: `fencedUpdate({ …, fence: token })`.
 * The response is 428 without the header, and 400 if the header cannot be read, names another lock, or has a token too far in the
 * future.
 *
 * @param key the key that the header must name, as with `@Fenced`; by default any key. If the write checks the token, you do not
 *   also need `@Fenced`
 * @throws LockOptionsError when the class is defined
 */
export function FencingToken(key?: string, options?: FencingTokenOptions): ParameterDecorator;
export function FencingToken(...given: [key?: string, options?: FencingTokenOptions]): ParameterDecorator {
  return decorator<number>('@FencingToken', "@FencingToken('key')", given, (target, member, index) => {
    const [key, options = {}] = given;
    const plan = readPlan('@FencingToken', key, options);
    createParamDecorator(
      (_: unknown, context: ExecutionContext): number | undefined => fencingClaimOf(context, plan)?.fencingToken,
    )()(target, member, index!);
    const method: unknown = member === undefined ? undefined : Reflect.get(target, member);
    if (typeof method !== 'function' || !plan.template) return;
    noteOn(method, { decorator: '@FencingToken', requestKeys: [plan.template] });
  });
}

const CHECKS = {
  optional: oneOf(true, false),
  timeoutMs: milliseconds(1, 60_000),
  maxAheadMs: fits(
    (value) => value === Infinity || (Number.isSafeInteger(value) && (value as number) >= 1_000),
    'a whole number of milliseconds, at least 1000, or Infinity',
  ),
};

const DEFAULTS = { optional: false, timeoutMs: 1_000, maxAheadMs: DAY_MS };

/** @throws LockOptionsError */
function readPlan(decorator: FencePlan['decorator'], key: unknown, options: FencedOptions): FencePlan {
  const template = key === undefined ? undefined : new KeyTemplate(key as string);
  if (template?.origin === 'arguments') {
    throw new LockOptionsError(
      `The key ${quoted(template.template)} of a fence cannot use arguments, since the guard runs before they exist: ` +
        'use parts of the request, like {params.id}.',
    );
  }
  return {
    decorator,
    template,
    ...DEFAULTS,
    ...checked(options, CHECKS),
    missingKeys: new MissingKeyWarnings('Fenced'),
  };
}
