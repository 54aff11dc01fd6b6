import type { LockRequest } from '../options/call-options.js';
import type { WaitRequest } from '../locks/waiter.js';
import type { AskingMethod } from './lock-order.js';

/** One call for a lock, or for several locks at once, with its options resolved. */
export interface Call {
  /** At least one, in the order in which they are acquired. */
  readonly keys: readonly string[];
  readonly isForSeveral: boolean;
  readonly request: LockRequest & WaitRequest;
  /** If undefined, the key supplies the label. */
  readonly label?: string;
  /** Whether its caller continues without the lock if others hold it: then contention is not an error. */
  readonly isOptional: boolean;
  /** Whether its caller has to release the lock. If the handle becomes garbage before, the library logs a warning. */
  readonly isWatched: boolean;
  /** The decorated method that requests the lock. */
  readonly method?: AskingMethod;
}
