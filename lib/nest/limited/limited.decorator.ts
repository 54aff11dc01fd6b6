import { permitsOf } from '../../core/options/call-options.js';
import type { LimitOptions } from '../../api/options.js';
import { lockedDecorator } from '../locked/locked.decorator.js';
import type { AnyKey, AnyLockedOptions, LockedKind } from '../locked/locked-method.js';
import type { AnswerArgs, LockedDecorator, OnContended, OnUnavailable, OutageArgs } from '../locked/locked.types.js';
import type { LimitedKey, LimitedOptions } from './limited.types.js';

/**
 * Runs the method under permits of a key (a semaphore): at most `limit` permits are held at a time, across all instances of the
 * application. So at most `limit` calls run at once for each key, or fewer if they take several `permits` each. Calls do not
 * overtake: a call that waits for many permits goes before a later call that needs fewer. Permits have no fencing token, since a
 * token could not identify a late writer among several holders. Everything else is as with `@Locked`.
 *
 * @param key one key, as in `@Locked`: a string or template, a function of the method's arguments, or `fromContext(…)`
 * @param options with a `limit`, or a `policy` that has one. Use the same limit wherever the key is used: the smallest limit of the
 *   current holders counts for all
 * @throws LockOptionsError when the class is defined: as with `@Locked`, for more `permits` than `limit`, for an array of keys, or
 *   for a method that also has `@Locked`. When the application starts: for a store without permits, such as a Redlock
 *
 * A call rejects with the errors of `@Locked`. Except for `LockLostError`, the method did not run.
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
