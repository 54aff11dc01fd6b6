import { AsyncLocalStorage } from 'node:async_hooks';
import * as timers from 'node:timers';

// Taken from the module on load: test frameworks replace the global functions with timers that do not run.
export const { clearImmediate, setImmediate, setTimeout } = timers;
export const nextTick = process.nextTick.bind(process);

/**
 * Runs work in the async context in which the library was loaded, which belongs to no call. Timers, batches and subscriptions serve many calls,
 * so they must not appear in the traces of the call that happened to start them.
 */
export const outsideOfCalls: <R>(work: () => R) => R = AsyncLocalStorage.snapshot();

/** Waits until the event loop has run once: its timers, and answers from the network. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
