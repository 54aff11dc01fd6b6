import { SimulatedTimer, type SimulatedProcess } from './process.js';
import type { Host, SimulatedListener, SimulatedSocket } from './network.js';

/** The environment of a program. */
export interface Surroundings {
  readonly process: SimulatedProcess;
  readonly host: Host;
  readonly random: () => number;
}

type Callback = (...args: never[]) => void;
type OnConnection = (socket: SimulatedSocket) => void;

/**
 * The time, chance and network that a program sees instead of the ones of Node.js.
 * @param here called each time, because modules keep what they have imported, and may outlive a simulation
 */
export function ambientOf(here: () => Surroundings) {
  const timers = {
    setTimeout: (callback: Callback, ms?: unknown, ...args: unknown[]) => here().process.setTimeout(callback, ms, args),
    setInterval: (callback: Callback, ms?: unknown, ...args: unknown[]) =>
      here().process.setTimeout(callback, ms, args, true),
    setImmediate: (callback: Callback, ...args: unknown[]) => here().process.setImmediate(callback, args),
    clearTimeout: clear,
    clearInterval: clear,
    clearImmediate: clear,
  };
  const randomBytes = (size: number) =>
    Buffer.from(Array.from({ length: size }, () => Math.floor(here().random() * 256)));
  return {
    timers,
    timersPromises: {
      setTimeout: (ms?: number, value?: unknown, options?: AbortOptions) =>
        settledBy((done) => timers.setTimeout(done, ms), value, options),
      setImmediate: (value?: unknown, options?: AbortOptions) =>
        settledBy((done) => timers.setImmediate(done), value, options),
    },
    Date: simulatedDate(Date, here),
    now: () => here().process.monotonicMs(),
    random: () => here().random(),
    randomBytes,
    /** Without the digits that give the kind of UUID. */
    randomUUID: () =>
      randomBytes(16)
        .toString('hex')
        .replace(/^(.{8})(.{4})(.{4})(.{4})/, '$1-$2-$3-$4-'),
    net: networkOf(here),
  };
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

function simulatedDate(RealDate: DateConstructor, here: () => Surroundings): DateConstructor {
  class SimulatedDate extends RealDate {
    constructor(...args: unknown[]) {
      if (args.length === 0) super(SimulatedDate.now());
      else super(...(args as [number]));
    }

    static override now(): number {
      return here().process.wallMs();
    }
  }
  return SimulatedDate as unknown as DateConstructor;
}

/** The functions of `node:net`. */
function networkOf(here: () => Surroundings) {
  const connect = (...args: unknown[]): SimulatedSocket => {
    const [port, host] = args;
    const onConnect = args.find((arg) => typeof arg === 'function') as (() => void) | undefined;
    const address =
      typeof port === 'object' ? port : { port: Number(port), host: typeof host === 'string' ? host : undefined };
    const socket = here().host.connect(address as { port: number; host?: string });
    return onConnect ? socket.once('connect', onConnect) : socket;
  };
  const createServer = (...args: unknown[]): SimulatedListener =>
    here().host.listener(args.find((arg) => typeof arg === 'function') as OnConnection | undefined);
  return { connect, createConnection: connect, createServer };
}
