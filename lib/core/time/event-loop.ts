import * as timers from 'node:timers';

// Those of the module, taken when this one is loaded: test frameworks replace the global ones by timers that stand still.
export const { clearImmediate, setImmediate, setTimeout } = timers;
export const nextTick = process.nextTick.bind(process);

/** Settles when the event loop has run: timers, and what came from the network. */
export function loopTurn(): Promise<void> {
  return new Promise((resolve) => void setImmediate(resolve));
}
