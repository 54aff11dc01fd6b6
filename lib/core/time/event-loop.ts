import { AsyncLocalStorage } from 'node:async_hooks';
import * as timers from 'node:timers';

// The module's functions, taken on load: test frameworks replace the global ones by timers that stand still.
export const { clearImmediate, setImmediate, setTimeout } = timers;
export const nextTick = process.nextTick.bind(process);

/**
 * Runs what is no part of the call that caused it: in the async context in which the library was loaded, which is none. Timers,
 * batches and subscriptions serve many calls, and would show up in the traces of that one.
 */
export const outsideOfCalls: <R>(work: () => R) => R = AsyncLocalStorage.snapshot();

/** Settles when the event loop has run once: timers, and answers from the network. */
export function yieldToEventLoop(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
