import { setMaxListeners } from 'node:events';
import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Calls what users have registered to be notified: observers of events and states, listeners of signals. It runs outside of the
 * call that caused it, and so under none of its locks: docs/adr/0044-called-back.md. A context of its own, as an observer that
 * calls `enterWith` leaves its store there before Node.js 24: the timers and commands of the library must not be in it.
 */
export const notify: <R, Args extends unknown[]>(call: (...args: Args) => R, ...args: Args) => R =
  AsyncLocalStorage.snapshot();

/** Aborts a signal that users may listen to: at once, with its listeners outside of the call that caused it. */
export function abort(controller: AbortController, reason: unknown): void {
  notify(() => controller.abort(reason));
}

/** A controller whose signal any number may listen to: Node.js takes more than ten listeners for a leak. */
export function sharedController(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}
