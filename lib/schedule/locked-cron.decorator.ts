import { Cron, SchedulerRegistry, type CronOptions } from '@nestjs/schedule';
import { LockOptionsError, type LockUnavailableError } from '../api/errors.js';
import type { PolicyName, WithPolicy } from '../api/options.js';
import { invalidOption } from '../core/options/checks.js';
import { noteOn } from '../nest/injection/decorated-methods.js';
import { methodDecorator, type SkippingDecorator } from '../nest/injection/method-decorator.js';
import { Locked } from '../nest/locked/locked.decorator.js';
import { lockedMethodOf } from '../nest/locked/locked-method.js';
import type { WithoutLock } from '../nest/locked/locked.types.js';

/** Options of `@LockedCron`: the options of `@Cron` and of the lock. */
export type LockedCronOptions = CronOptions & CronLockOptions & (CronPolicyOptions | (CronHoldOptions & WithPolicy));

interface CronLockOptions {
  /**
   * Maximum time that a run holds the lock, in milliseconds, at least `holdMs`: for a job that may hang. ShedLock calls it
   * `lockAtMostFor`. Then `LockService.current().signal` aborts: see `@Locked`. If this time plus `ttlMs` is shorter than the time
   * between two runs, a job that hangs does not block the next run.
   * @default no limit
   */
  maxHoldMs?: number;
  /**
   * Lease of the lock, in milliseconds: see `@Locked`.
   * @default the ttl of the registration
   */
  ttlMs?: number;
  /**
   * What to do if the store cannot be reached or does not answer in time. `throw` throws the `LockUnavailableError`, which Nest logs.
   * `skip` skips the run. A function is called, for example to count such runs; its result is ignored. **The function runs without a
   * lock**, in each instance: never let it do the work.
   * @default 'throw'
   */
  onUnavailable?: 'throw' | 'skip' | WithoutLock<[], unknown>;
  /**
   * The `name` of the registration that keeps the lock.
   * @default the registration without a name
   */
  registration?: string;
}

interface CronHoldOptions {
  /**
   * Minimum time to keep the lock of a run, in milliseconds, 1 to 86 400 000, and on a Redlock at most the `ttlMs` of the
   * registration. ShedLock calls it `lockAtLeastFor`. An instance whose clock is late by less than this time skips a run that another
   * instance has done. Choose more than the difference between the instances' clocks, and less than the time between two runs.
   * Required, here or in the `policy`.
   */
  holdMs: number;
}

interface CronPolicyOptions extends Partial<CronHoldOptions> {
  /** The name of a policy of the registration, for options that are not set here. Its `waitMs` has no effect: a run never waits. */
  policy: PolicyName;
}

type CronTime = Parameters<typeof Cron>[0];

/** A string without placeholders. */
type FixedText<Key extends string> = Key extends `${string}{${string}`
  ? { error: 'a cron job has no arguments: the key must be a fixed string' }
  : unknown;

/** Fits methods whose Promise may resolve to undefined, since a skipped run returns undefined. */
export interface LockedCronDecorator extends SkippingDecorator<'a skipped run'> {}

/**
 * Makes the method a cron job that only one instance runs each time: `@Cron` on a method with `@Locked`, whose lock is kept for
 * `holdMs`. Instances that find the lock taken skip the run. A job that throws counts as run: other instances do not repeat it. The
 * job belongs to the whole application, so its key has no scope. The application also needs `ScheduleModule.forRoot()`: without it
 * nothing runs the job, and the start logs a warning.
 *
 * @param cronTime when it runs, as `@Cron` takes it
 * @param key a fixed string, the same in all instances
 * @throws LockOptionsError when the class is defined: for a key that is not a fixed string, a missing `holdMs`, or anything that
 *   `@Locked` refuses. When the application starts: for a policy that is unknown or has no `holdMs`
 */
export function LockedCron<const Key extends string>(
  cronTime: CronTime,
  key: Key & FixedText<Key>,
  options: LockedCronOptions,
): LockedCronDecorator;
export function LockedCron(...given: [cronTime: CronTime, key: string, options: LockedCronOptions]): MethodDecorator {
  const example = "@LockedCron('0 3 * * *', 'key', { holdMs: 60_000 })";
  return methodDecorator('@LockedCron', example, given, ({ target, property, descriptor }) => {
    const [cronTime, key, options] = given;
    if (typeof key !== 'string' || /[{}]/.test(key)) {
      throw invalidOption('the key', key, 'a fixed string like "nightly", since a cron job has no arguments');
    }
    const { holdMs, maxHoldMs, ttlMs, registration, policy, onUnavailable, ...cronOptions } = options ?? {};
    const isLeftToPolicy = policy !== undefined && holdMs === undefined;
    if (!isLeftToPolicy && !(holdMs! > 0)) {
      const between =
        'more than the difference between the clocks of the instances, and less than the time between two runs';
      throw invalidOption('holdMs', holdMs, `a number of milliseconds, ${between}`);
    }
    const lease = { holdMs, maxHoldMs, ttlMs, registration, policy };
    const instead =
      typeof onUnavailable === 'function'
        ? async (error: LockUnavailableError) => void (await onUnavailable(error))
        : onUnavailable;
    const locked: MethodDecorator = Locked(key, {
      ...lease,
      waitMs: 0,
      onContended: 'skip',
      onUnavailable: instead,
      scope: null,
    });
    locked(target, property, descriptor);
    const job = descriptor.value as object;
    if (lockedMethodOf(job)?.returnsObservable) {
      throw new LockOptionsError('a cron job must return a Promise, since nobody subscribes to an Observable.');
    }
    Cron(cronTime, cronOptions)(target, property, descriptor);
    const needs = { provider: SchedulerRegistry, module: 'ScheduleModule.forRoot() of @nestjs/schedule' };
    noteOn(job, { decorator: '@LockedCron', override: 'is never called', needs, keepsLock: true });
  });
}
