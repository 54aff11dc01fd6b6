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
   * How far the token may be ahead of the time of this machine, in milliseconds, at least 1 000; else the answer is 400. A token
   * is the time of its grant by the clock of Redis. A token from the future would lock out all later holders until then. Choose
   * more than the clocks of this machine and of Redis differ. `Infinity` accepts all tokens: for a store of your own whose
   * tokens are not times.
   * @default 86400000: a day
   */
  maxAheadMs?: number;
}

/** Options of `@Fenced`. */
export interface FencedOptions extends FencingTokenOptions {
  /** How long the store may take before the request is refused with 503, in milliseconds, 1 to 60 000. @default 1000 */
  timeoutMs?: number;
}

/**
 * Lets a request pass only with a `Fencing-Token` of this key that is not older than any seen before. Put it on a handler, or
 * on a controller for all of its handlers.
 *
 * @param key the key of the lock, as in `@Locked` at the client: `stock:{params.sku}`. A request that names another key is
 *   refused, because its token says nothing about this resource
 * @throws LockOptionsError when the class is defined: for a key that is missing, cannot be parsed or uses arguments, or a bad
 *   option
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
 * A request without the header gets the answer 428. If the header cannot be read, is for another lock, or has a token too far
 * ahead of the time, the answer is 400.
 *
 * @param key the key that the header must name, as with `@Fenced`; by default any. You do not need `@Fenced` as well if the
 *   write checks the token
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
      `The key ${quoted(template.template)} of a fence cannot be made of arguments, since the guard runs before there are any: ` +
        'use {params.id} and the like.',
    );
  }
  return { decorator, template, ...DEFAULTS, ...checked(options, CHECKS), unmade: new MissingKeyWarnings('Fenced') };
}
