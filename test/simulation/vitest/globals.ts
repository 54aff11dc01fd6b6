import { createRequire, syncBuiltinESMExports } from 'node:module';
import { ambientOf } from '../ambient.js';
import { simulation } from './simulation.js';

/** The functions of Node.js, taken before they are replaced. */
export const real = {
  setImmediate: globalThis.setImmediate,
  setTimeout: globalThis.setTimeout,
};

/**
 * Replaces the time, chance and network that a program sees by the simulation of its file. The replacements ask for the
 * current simulation, because modules keep them: they outlive a file.
 */
export function replaceGlobals(): void {
  const require = createRequire(import.meta.url);
  const { timers, timersPromises, Date, now, random, randomBytes, randomUUID, net } = ambientOf(simulation);
  Object.assign(globalThis, timers, { Date });
  Object.assign(require('node:timers') as object, timers);
  Object.assign(require('node:timers/promises') as object, timersPromises);
  Object.defineProperty(performance, 'now', { value: now, configurable: true });
  AbortSignal.timeout = (ms) => {
    const controller = new AbortController();
    const reason = new DOMException('The operation was aborted due to timeout', 'TimeoutError');
    timers.setTimeout(() => controller.abort(reason), ms);
    return controller.signal;
  };
  Math.random = random;
  Object.assign(require('node:crypto') as object, { randomBytes, randomUUID });
  Object.assign(require('node:net') as object, net);
  syncBuiltinESMExports();
}
