import { LockUnavailableError } from '../../api/errors.js';

/** Ends the waiting of calls, once it has happened: of those that wait then, and of those that would wait later. */
export class Interruption {
  happened = false;
  /** Nor are locks granted any more that are free. */
  isFinal = false;
}

/** What a call gets that would wait, or begins, when the application closes. */
export function closed(key: string): LockUnavailableError {
  return new LockUnavailableError('The application is closing: no lock is given out any more.', key);
}
