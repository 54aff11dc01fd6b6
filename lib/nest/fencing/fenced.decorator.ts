import { applyDecorators, createParamDecorator, SetMetadata, UseGuards, type ExecutionContext } from '@nestjs/common';
import { LockOptionsError } from '../../api/errors.js';
import {
  FENCED_PLAN,
  fencingClaimOf,
  FencingTokenGuard,
  type FencedPlan,
  type HeaderPlan,
} from './fencing-token.guard.js';
import { KeyTemplate } from '../../core/keys/key-template.js';
import { refuseStandard } from '../injection/refuse-standard.js';

/** Options of `@FencingToken`. */
export interface FencingTokenOptions {
  /** Let requests without the header pass. @default false */
  optional?: boolean;
}

/** Options of `@Fenced`. */
export interface FencedOptions extends FencingTokenOptions {
  /** How long the store may take before the request is refused with 503, in milliseconds, 1 to 60 000. @default 1000 */
  timeoutMs?: number;
}

/**
 * Lets a request pass only with a `Fencing-Token` of this key that is not older than one that was seen. On a handler, or
 * a controller for all of its handlers.
 *
 * @param key the key of the lock, as `@Locked` at the client has it: `stock:{params.sku}`; a request that names another
 *   one is refused, for its token says nothing about this resource
 * @throws LockOptionsError when the class is defined: a key that cannot be read or is made of arguments, a bad option
 */
export function Fenced(key: string, options: FencedOptions = {}): ClassDecorator & MethodDecorator {
  const { timeoutMs }: { timeoutMs?: unknown } = options;
  if (
    timeoutMs !== undefined &&
    !(Number.isInteger(timeoutMs) && Number(timeoutMs) >= 1 && Number(timeoutMs) <= 60_000)
  ) {
    throw new LockOptionsError(`timeoutMs of @Fenced must be 1 to 60 000 ms: got ${JSON.stringify(timeoutMs)}.`);
  }
  const plan: FencedPlan = { ...readPlan(key, options), timeoutMs: options.timeoutMs };
  const fence = applyDecorators(SetMetadata(FENCED_PLAN, plan), UseGuards(FencingTokenGuard));
  return (target: object, property?: string | symbol, descriptor?: PropertyDescriptor) => {
    refuseStandard('@Fenced', property);
    fence(target, property, descriptor);
  };
}

/**
 * A parameter with the fencing token of the request, for the write itself: `fencedUpdate({ …, fence: token })`. A request
 * without the header is answered with 428, one that cannot be read or is of another lock with 400.
 *
 * @param key the key that the header must name, as with `@Fenced`, which is not needed beside this where the write looks
 *   at the token; by default any
 * @throws LockOptionsError when the class is defined
 */
export function FencingToken(key?: string, options: FencingTokenOptions = {}): ParameterDecorator {
  const plan = readPlan(key, options);
  return createParamDecorator(
    (_: unknown, context: ExecutionContext): number | undefined => fencingClaimOf(context, plan)?.fencingToken,
  )();
}

function readPlan(key: string | undefined, { optional = false }: { optional?: unknown }): HeaderPlan {
  if (typeof optional !== 'boolean') {
    throw new LockOptionsError(`optional must be true or false: got ${JSON.stringify(optional)}.`);
  }
  const template = key === undefined ? undefined : new KeyTemplate(key);
  if (template?.origin === 'arguments') {
    throw new LockOptionsError(
      `The key "${key}" of a fence cannot be made of arguments, since the guard runs before there are any: ` +
        'use {params.id} and the like.',
    );
  }
  return { template, optional };
}
