import type { LockRequest } from '../options/call-options.js';
import type { WaitRequest } from '../locks/waiter.js';
import type { AskingMethod } from './lock-order.js';

/** One call for a lock, or for several at once: what its options, its policy and its service say, resolved once. */
export interface Call {
  /** At least one, in the order in which they are acquired. */
  readonly keys: readonly string[];
  readonly isForSeveral: boolean;
  readonly request: LockRequest & WaitRequest;
  /** Undefined: made of the key. */
  readonly label?: string;
  /** Whether its caller goes on without the lock if another holder has it: then contention is no error. */
  readonly isOptional: boolean;
  /** Whether its caller has to release the lock: a warning says so if nobody can any more. */
  readonly isWatched: boolean;
  /** The method that asks by its decorator. */
  readonly method?: AskingMethod;
}
