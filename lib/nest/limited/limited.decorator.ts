import { permitsOf } from '../../core/options/call-options.js';
import type { LimitOptions } from '../../api/options.js';
import { lockedDecorator } from '../locked/locked.decorator.js';
import type { AnyKey, AnyLockedOptions, LockedKind } from '../locked/locked-method.js';
import type { AnswerArgs, LockedDecorator, OnContended, OnUnavailable, OutageArgs } from '../locked/locked.types.js';
import type { LimitedKey, LimitedOptions } from './limited.types.js';

/**
 * Runs the method under permits of a key: at most `limit` of them are held at a time, across all instances of the application.
 * So at most `limit` calls run at once for each key, or fewer if they take several `permits` each. Nobody overtakes: a call that
 * waits for many permits is not passed by one that needs fewer. Everything else is as with `@Locked`. Other than a lock, permits
 * have no fencing token: a resource could not tell by one which of several holders is late.
 *
 * @param key one key, made as that of `@Locked`: a string or template, a function of the method's arguments, or `fromContext(…)`
 * @param options `limit` is required, or a `policy` that has one: name the same one wherever the key is used, as the smallest of those in use counts for all
 * @throws LockOptionsError when the class is defined, as `@Locked` does; for `permits` that are more than `limit`, an array of keys,
 *   or a method that is `@Locked`, too. When the application starts: for a store that has no permits, such as a Redlock
 *
 * A call rejects with the errors of `@Locked`, and has not run then, except for `LockLostError`.
 */
export function Limited<
  KeyArgs extends unknown[] = [],
  const Key extends LimitedKey = never,
  Args extends unknown[] = [],
  Value = never,
  Way extends 'throw' | 'skip' = 'throw' | 'skip',
  DownArgs extends unknown[] = [],
  DownValue = never,
  DownWay extends 'throw' | 'skip' = 'throw' | 'skip',
>(
  key: Key | ((...args: KeyArgs) => string),
  options: LimitedOptions<
    OnContended<AnswerArgs<Key, Args>, Value, Way>,
    OnUnavailable<OutageArgs<Key, DownArgs>, DownValue, DownWay>
  >,
): LockedDecorator<Key, KeyArgs, [Args, Value, Way], [DownArgs, DownValue, DownWay]>;
export function Limited(...given: [key: AnyKey, options: object]): MethodDecorator {
  return lockedDecorator(LIMITED, given);
}

const LIMITED: LockedKind = {
  decorator: '@Limited',
  example: "@Limited('key', { limit: 5 })",
  under: 'permits',
  call: 'LockService.withPermits',
  split: (given) => permitsOf(given as AnyLockedOptions & LimitOptions),
};
