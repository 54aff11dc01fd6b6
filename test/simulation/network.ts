import { EventEmitter } from 'node:events';
import { Duplex } from 'node:stream';
import type { SimulatedProcess, SimulatedTimer } from './process.js';
import type { Scheduler } from './scheduler.js';

/** The end of a connection that things arrive at. */
export interface Peer {
  onBytes(bytes: Buffer): void;
  /** The other end has sent all, or has closed the connection. */
  onEnd(): void;
  /** The connection broke. */
  onReset(): void;
}

/** What the one who connects is told. */
export interface Connecting {
  /** @param server what it is told arrives there later */
  onOpen(server: Peer): void;
  onRefused(): void;
}

/** What accepts connections on a port. */
export interface Listener {
  /** @returns the end at the server */
  accept(client: Peer): Peer;
}

/** The shortest and the longest way of a packet, in microseconds. */
const WAY_US = [15, 50] as const;
const FIRST_PORT = 20_000;

/** The loopback network of a simulation: sockets of the process and simulated servers meet on its ports. */
export class Network {
  readonly #listeners = new Map<number, Listener>();
  readonly #random: () => number;
  #lastPort = FIRST_PORT;

  constructor(
    private readonly scheduler: Scheduler,
    readonly process: SimulatedProcess,
  ) {
    this.#random = scheduler.stream('network');
  }

  freePort(): number {
    do this.#lastPort++;
    while (this.#listeners.has(this.#lastPort));
    return this.#lastPort;
  }

  /** @returns whether the port was free */
  listen(port: number, listener: Listener): boolean {
    if (this.#listeners.has(port)) return false;
    this.#listeners.set(port, listener);
    return true;
  }

  close(port: number, listener: Listener): void {
    if (this.#listeners.get(port) === listener) this.#listeners.delete(port);
  }

  listenerOf(port: number): Listener | undefined {
    return this.#listeners.get(port);
  }

  /** A server connects to another one. @param client its end */
  connect(port: number, client: Peer, { onOpen, onRefused }: Connecting): void {
    const now = () => this.scheduler.now;
    const [send, reply] = [this.way(now), this.way(now)];
    send(() => {
      const peer = this.listenerOf(port)?.accept(client);
      reply(() => {
        if (!peer) onRefused();
        else
          onOpen({
            onBytes: (bytes) => send(() => peer.onBytes(bytes)),
            onEnd: () => send(() => peer.onEnd()),
            onReset: () => send(() => peer.onReset()),
          });
      });
    });
  }

  /** One direction of a connection: what is sent arrives in order. @param nowUs the time at the sender */
  way(nowUs: () => number): (arrive: () => void) => void {
    const [least, most] = WAY_US;
    let last = 0;
    return (arrive) => {
      last = Math.max(last, nowUs() + least + Math.floor(this.#random() * (most - least)));
      this.scheduler.at(last, arrive);
    };
  }
}

interface Address {
  readonly port: number;
  readonly host?: string;
}

/** A socket of `node:net` in simulated time. */
export class SimulatedSocket extends Duplex implements Peer {
  connecting = false;
  remotePort?: number;
  remoteAddress?: string;
  peer?: Peer;
  readonly #network: Network;
  readonly #send: (arrive: () => void) => void;
  readonly #untilConnected: (() => void)[] = [];
  #idleMs = 0;
  #idle?: SimulatedTimer;

  constructor(network: Network) {
    super({ allowHalfOpen: false });
    this.#network = network;
    this.#send = network.way(() => network.process.now);
  }

  connect({ port, host = '127.0.0.1' }: Address): this {
    this.connecting = true;
    this.remotePort = port;
    this.remoteAddress = host;
    this.#send(() => {
      const listener = this.#network.listenerOf(port);
      this.peer = this.destroyed ? undefined : listener?.accept(this);
      this.#handle(() => {
        if (this.destroyed) return;
        if (!listener) {
          this.destroy(failure('connect', 'ECONNREFUSED', `${host}:${port}`));
          return;
        }
        this.connecting = false;
        for (const act of this.#untilConnected.splice(0)) act();
        this.emit('connect');
        this.emit('ready');
      });
    });
    return this;
  }

  onBytes(bytes: Buffer): void {
    this.#handle(() => {
      if (this.destroyed || this.readableEnded) return;
      this.#touch();
      this.push(bytes);
    });
  }

  /** The other end has sent all. */
  onEnd(): void {
    this.#handle(() => {
      if (this.destroyed) return;
      this.push(null);
      // Otherwise nobody would ever see the end.
      if (this.listenerCount('data') + this.listenerCount('readable') === 0) this.resume();
    });
  }

  onReset(): void {
    this.#handle(() => {
      if (!this.destroyed) this.destroy(failure('read', 'ECONNRESET'));
    });
  }

  override _read(): void {}

  override _write(bytes: Buffer, _encoding: BufferEncoding, done: (error?: Error) => void): void {
    this.#onceConnected(() => {
      this.#touch();
      const { peer } = this;
      this.#send(() => peer?.onBytes(bytes));
      done();
    });
  }

  override _final(done: (error?: Error) => void): void {
    this.#onceConnected(() => {
      const { peer } = this;
      this.#send(() => peer?.onEnd());
      done();
    });
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#idle?.close();
    const { peer } = this;
    this.peer = undefined;
    if (peer) this.#send(() => (error ? peer.onReset() : peer.onEnd()));
    done(error);
  }

  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', () => this.destroy());
  }

  resetAndDestroy(): this {
    return this.destroy(failure('read', 'ECONNRESET'));
  }

  setTimeout(ms: number, onTimeout?: () => void): this {
    this.#idleMs = ms;
    if (onTimeout) this.once('timeout', onTimeout);
    this.#touch();
    return this;
  }

  setNoDelay(): this {
    return this;
  }

  setKeepAlive(): this {
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }

  address(): object {
    return { address: '127.0.0.1', family: 'IPv4', port: this.remotePort };
  }

  /** In a turn of the process. */
  #handle(act: () => void): void {
    this.#network.process.receive(act);
  }

  #onceConnected(act: () => void): void {
    if (this.connecting) this.#untilConnected.push(act);
    else act();
  }

  #touch(): void {
    this.#idle?.close();
    if (this.#idleMs > 0) this.#idle = this.#network.process.setTimeout(() => this.emit('timeout'), this.#idleMs, []);
  }
}

/** A server of `node:net` in simulated time, such as the proxy of a test. */
export class SimulatedListener extends EventEmitter implements Listener {
  listening = false;
  #port = 0;

  constructor(
    private readonly network: Network,
    onConnection?: (socket: SimulatedSocket) => void,
  ) {
    super();
    if (onConnection) this.on('connection', onConnection);
  }

  listen(port: number | Address = 0, ...rest: unknown[]): this {
    const onListening = rest.find((arg) => typeof arg === 'function') as (() => void) | undefined;
    if (onListening) this.once('listening', onListening);
    this.#port = (typeof port === 'object' ? port.port : Number(port)) || this.network.freePort();
    this.network.process.setImmediate(() => {
      this.listening = this.network.listen(this.#port, this);
      if (this.listening) this.emit('listening');
      else this.emit('error', failure('listen', 'EADDRINUSE', `127.0.0.1:${this.#port}`));
    }, []);
    return this;
  }

  accept(client: Peer): Peer {
    const socket = new SimulatedSocket(this.network);
    socket.peer = client;
    this.network.process.receive(() => this.emit('connection', socket));
    return socket;
  }

  address(): object {
    return { address: '127.0.0.1', family: 'IPv4', port: this.#port };
  }

  close(onClose?: () => void): this {
    this.network.close(this.#port, this);
    this.listening = false;
    this.network.process.setImmediate(() => {
      this.emit('close');
      onClose?.();
    }, []);
    return this;
  }

  ref(): this {
    return this;
  }

  unref(): this {
    return this;
  }
}

function failure(syscall: string, code: string, address = ''): Error {
  const error = new Error(`${syscall} ${code}${address && ` ${address}`}`);
  return Object.assign(error, { code, syscall, errno: -1 });
}
