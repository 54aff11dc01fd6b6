import type {
  HoldOptions,
  LabelOptions,
  LeaseOptions,
  LimitOptions,
  LossOptions,
  ReleaseOptions,
  ScopeOptions,
} from '../../api/options.js';
import type { ContextKey } from '../locked/locked-method.js';
import type { LockedMethodOptions, OnContended, OnUnavailable } from '../locked/locked.types.js';

/** Options of `@Limited`: a `limit`, or a policy that has one. */
export type LimitedOptions<Contended = OnContended, Unavailable = OnUnavailable> = LimitOptions &
  LeaseOptions &
  Omit<HoldOptions, 'holdMs'> &
  LabelOptions &
  LossOptions &
  ReleaseOptions &
  ScopeOptions &
  LockedMethodOptions<Contended, Unavailable>;

/** The return type is written out so that compiler errors show it. */
type KeyFunction = (...args: never) => string;

/** The key of `@Limited`: a string or template, `fromContext(…)`, or a function of the method's arguments. */
export type LimitedKey = string | ContextKey<string> | KeyFunction;
