import { setMaxListeners } from 'node:events';
import { AsyncLocalStorage } from 'node:async_hooks';

/**
 * Calls a callback of users: an observer of events or states, or a listener of a signal. It runs outside of the call that caused it, and so
 * under none of its locks: docs/adr/0044-called-back.md. It has its own async context. Before Node.js 24, an observer that calls `enterWith`
 * leaves its store there, and the timers and commands of the library must not get that store.
 */
export const notify: <R, Args extends unknown[]>(call: (...args: Args) => R, ...args: Args) => R =
  AsyncLocalStorage.snapshot();

/** Aborts a signal at once. Its listeners run outside of the call that caused that. */
export function abort(controller: AbortController, reason: unknown): void {
  notify(() => controller.abort(reason));
}

/** A controller whose signal can have any number of listeners: Node.js warns of a leak after ten. */
export function sharedController(): AbortController {
  const controller = new AbortController();
  setMaxListeners(0, controller.signal);
  return controller;
}
