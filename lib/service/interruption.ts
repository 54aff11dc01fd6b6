import { LockUnavailableError } from '../errors.js';

/** Ends the waiting of calls: of those that wait now, and of those that would wait later. */
export class Interruption {
  /** What to tell those who wait; they take themselves out. */
  readonly waiting = new Set<() => void>();
  #happened = false;

  get happened(): boolean {
    return this.#happened;
  }

  interrupt(): void {
    this.#happened = true;
    for (const tell of [...this.waiting]) tell();
  }
}

/** What a call gets that would wait, or begins, when the application closes. */
export function closed(key: string): LockUnavailableError {
  return new LockUnavailableError('The application is closing: no lock is given out any more.', key);
}
