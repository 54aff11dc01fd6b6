import * as timers from 'node:timers';

// The module's functions, taken on load: test frameworks replace the global ones by timers that stand still.
export const { clearImmediate, setImmediate, setTimeout } = timers;
export const nextTick = process.nextTick.bind(process);

/** Settles when the event loop has run once: timers, and answers from the network. */
export function loopTurn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
