import type { CanActivate, ExecutionContext, ModuleMetadata, Type } from '@nestjs/common';
import { LockOptionsError } from '../api/errors.js';
import {
  checked,
  fits,
  isFunction,
  isOptions,
  oneOf,
  refuseUnknown,
  invalidOption,
  type Check,
} from '../core/options/checks.js';
import { CHECKS as OPTIONS } from '../core/options/option-rows.js';

/** A guard as `@UseGuards` takes it. */
export type PageGuard = Type<CanActivate> | CanActivate;

/** Options of `LocksPageModule.register`. */
export interface LocksPageOptions {
  /** Path of the page, such as `admin/locks`, after the global prefix of the application. */
  path: string;
  /**
   * The guards of all routes of the page, at least one: anyone who passes them sees which processes hold which locks. `'none'` if
   * something else protects the page, such as a global guard or a proxy; the start then logs a warning.
   */
  guards: readonly PageGuard[] | 'none';
  /** Modules that export what the guards inject. @default none */
  imports?: ModuleMetadata['imports'];
  /** Whether locks can be released by force on the page. @default false */
  allowRelease?: boolean;
  /**
   * Returns whether a viewer may release locks, with `allowRelease: true`. The page calls it for each request, after the guards. For
   * other viewers the page is read-only.
   * @default all viewers may
   */
  mayRelease?: (context: ExecutionContext) => boolean | Promise<boolean>;
  /** Name of the registration whose locks are shown. @default the registration without a name */
  registration?: string;
}

const CHECKS: Readonly<Record<string, Check>> = {
  path: fits((value) => typeof value === 'string', 'a string, such as "admin/locks"'),
  guards: (_, value) => {
    if (value === 'none' || (Array.isArray(value) && value.length > 0 && value.every(isGuard))) return;
    throw new LockOptionsError(
      'guards must be a list of at least one guard, classes or instances with canActivate: anyone who reaches the page sees which ' +
        `locks are held, and by whom. Write guards: [AdminGuard], or guards: 'none' if something else protects the page.`,
    );
  },
  allowRelease: oneOf(true, false),
  mayRelease: fits(isFunction, 'a function of the ExecutionContext'),
  registration: OPTIONS['@Locked'].registration!,
  imports: fits(Array.isArray, 'an array of modules'),
};

/** @throws LockOptionsError */
export function checkPageOptions(options: LocksPageOptions): void {
  if (!isOptions(options)) {
    throw invalidOption('the argument of LocksPageModule.register', options, 'an object with options');
  }
  refuseUnknown(options, Object.keys(CHECKS));
  for (const name of ['path', 'guards'] as const) CHECKS[name]!(name, options[name]);
  checked(options, CHECKS);
  if (options.mayRelease !== undefined && !options.allowRelease) {
    throw new LockOptionsError('mayRelease has no effect without allowRelease: true. Add that, or remove mayRelease.');
  }
}

function isGuard(guard: unknown): boolean {
  const target: unknown = typeof guard === 'function' ? guard.prototype : guard;
  return typeof (target as Partial<CanActivate> | null | undefined)?.canActivate === 'function';
}
