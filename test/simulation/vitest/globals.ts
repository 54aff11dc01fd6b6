import { createRequire, syncBuiltinESMExports } from 'node:module';
import { SimulatedSocket } from '../network.js';
import { SimulatedTimer } from '../process.js';
import { simulation } from './simulation.js';

/** The functions of Node.js, taken before they are replaced. */
export const real = {
  setImmediate: globalThis.setImmediate,
  setTimeout: globalThis.setTimeout,
};

type Callback = (...args: never[]) => void;

/**
 * Replaces what a program sees of time, chance and the network by what the simulation of its file has. The replacements ask for
 * the present simulation, as modules keep them: they outlive a file.
 */
export function replaceGlobals(): void {
  const require = createRequire(import.meta.url);
  const timers = {
    setTimeout: (callback: Callback, ms?: unknown, ...args: unknown[]) =>
      simulation().process.setTimeout(callback, ms, args),
    setInterval: (callback: Callback, ms?: unknown, ...args: unknown[]) =>
      simulation().process.setTimeout(callback, ms, args, true),
    setImmediate: (callback: Callback, ...args: unknown[]) => simulation().process.setImmediate(callback, args),
    clearTimeout: clear,
    clearInterval: clear,
    clearImmediate: clear,
  };
  Object.assign(globalThis, timers);
  Object.assign(require('node:timers') as object, timers);
  Object.assign(require('node:timers/promises') as object, {
    setTimeout: (ms?: number, value?: unknown, options?: AbortOptions) =>
      settledBy((done) => timers.setTimeout(done, ms), value, options),
    setImmediate: (value?: unknown, options?: AbortOptions) =>
      settledBy((done) => timers.setImmediate(done), value, options),
  });

  globalThis.Date = simulatedDate(Date);
  Object.defineProperty(performance, 'now', { value: () => simulation().process.monotonicMs(), configurable: true });
  AbortSignal.timeout = (ms) => {
    const controller = new AbortController();
    const reason = new DOMException('The operation was aborted due to timeout', 'TimeoutError');
    timers.setTimeout(() => controller.abort(reason), ms);
    return controller.signal;
  };

  Math.random = () => simulation().random();
  Object.assign(require('node:crypto') as object, {
    randomBytes: (size: number) => Buffer.from(Array.from({ length: size }, () => Math.floor(Math.random() * 256))),
  });

  const connect = (...args: unknown[]) => {
    const [port, host] = args;
    const onConnect = args.find((arg) => typeof arg === 'function') as (() => void) | undefined;
    const options =
      typeof port === 'object' ? port : { port: Number(port), host: typeof host === 'string' ? host : undefined };
    const socket = simulation().connect(options as { port: number; host?: string });
    return onConnect ? socket.once('connect', onConnect) : socket;
  };
  Object.assign(require('node:net') as object, {
    connect,
    createConnection: connect,
    createServer: (...args: unknown[]) =>
      simulation().listener(args.find((arg) => typeof arg === 'function') as (socket: SimulatedSocket) => void),
  });
  syncBuiltinESMExports();
}

function clear(timer: unknown): void {
  if (timer instanceof SimulatedTimer) timer.close();
}

interface AbortOptions {
  readonly signal?: AbortSignal;
}

/** As the functions of `node:timers/promises` settle. */
function settledBy(
  start: (done: () => void) => SimulatedTimer,
  value: unknown,
  { signal }: AbortOptions = {},
): Promise<unknown> {
  const aborted = () =>
    Object.assign(new Error('The operation was aborted', { cause: signal!.reason }), {
      name: 'AbortError',
      code: 'ABORT_ERR',
    });
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(aborted());
      return;
    }
    const timer = start(() => resolve(value));
    signal?.addEventListener('abort', () => (timer.close(), reject(aborted())), { once: true });
  });
}

function simulatedDate(RealDate: DateConstructor): DateConstructor {
  class SimulatedDate extends RealDate {
    constructor(...args: unknown[]) {
      if (args.length === 0) super(SimulatedDate.now());
      else super(...(args as [number]));
    }

    static override now(): number {
      return simulation().process.wallMs();
    }
  }
  return SimulatedDate as unknown as DateConstructor;
}
