import { EventEmitter } from 'node:events';
import { Duplex } from 'node:stream';
import { Link, type Connection } from './link.js';
import type { Connecting, Listener, Peer, RemotePeer } from './peer.js';
import type { SimulatedProcess, SimulatedTimer } from './process.js';
import type { Scheduler } from './scheduler.js';

const FIRST_PORT = 20_000;

/** The network of a simulation: sockets of processes and simulated servers meet on its ports. */
export class Network {
  readonly #listeners = new Map<number, Listener>();
  readonly #loopback: Link;
  #lastPort = FIRST_PORT;

  constructor(scheduler: Scheduler) {
    this.#loopback = new Link(scheduler, scheduler.stream('network'));
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

  /**
   * A server connects to another one.
   * @param client its end
   */
  connect(port: number, client: Peer, connecting: Connecting): void {
    this.#loopback.open(client, () => this.listenerOf(port), connecting);
  }

  /** @param linkTo the link from this process to a port: by default, everything it connects to is on its own machine */
  hostOf(process: SimulatedProcess, linkTo: (port: number) => Link = () => this.#loopback): Host {
    return new Host(this, process, linkTo);
  }
}

/** A process in the network. */
export class Host {
  /** Those that are not closed. */
  readonly sockets = new Set<SimulatedSocket>();

  constructor(
    readonly network: Network,
    readonly process: SimulatedProcess,
    readonly linkTo: (port: number) => Link,
  ) {}

  connect(address: Address): SimulatedSocket {
    return new SimulatedSocket(this).connect(address);
  }

  listener(onConnection?: (socket: SimulatedSocket) => void): SimulatedListener {
    return new SimulatedListener(this, onConnection);
  }

  /** Closes what a killed process leaves behind, as its kernel does. */
  abandon(): void {
    for (const socket of this.sockets) socket.abandon();
    this.sockets.clear();
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
  bytesRead = 0;
  /** The other end. */
  peer?: RemotePeer;
  readonly #host: Host;
  readonly #untilConnected: (() => void)[] = [];
  #connection?: Connection;
  #idleMs = 0;
  #idle?: SimulatedTimer;

  constructor(host: Host) {
    super({ allowHalfOpen: false });
    this.#host = host;
    host.sockets.add(this);
  }

  get now(): number {
    return this.#host.process.now;
  }

  connect({ port, host = '127.0.0.1' }: Address): this {
    this.connecting = true;
    this.remotePort = port;
    this.remoteAddress = host;
    const refused = () => failure('connect', 'ECONNREFUSED', `${host}:${port}`);
    this.#connection = this.#host.linkTo(port).open(this, () => this.#host.network.listenerOf(port), {
      onOpen: (peer) => {
        this.peer = peer;
        this.#handle(() => {
          if (this.destroyed) return;
          this.connecting = false;
          for (const act of this.#untilConnected.splice(0)) act();
          this.emit('connect');
          this.emit('ready');
        });
      },
      onRefused: () => this.#handle(() => void (this.destroyed || this.destroy(refused()))),
    });
    return this;
  }

  /** Its process was killed. */
  abandon(): void {
    this.#connection?.abandon();
    this.peer?.onReset();
    this.peer = undefined;
  }

  onBytes(bytes: Buffer): void {
    this.#handle(() => {
      if (this.destroyed || this.readableEnded) return;
      this.#touch();
      this.bytesRead += bytes.length;
      this.push(bytes);
    });
  }

  /** The other end has sent everything. */
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
      this.peer?.onBytes(bytes);
      done();
    });
  }

  override _final(done: (error?: Error) => void): void {
    this.#onceConnected(() => {
      this.peer?.onEnd();
      done();
    });
  }

  override _destroy(error: Error | null, done: (error: Error | null) => void): void {
    this.#idle?.close();
    this.#host.sockets.delete(this);
    const { peer } = this;
    this.peer = undefined;
    this.#connection?.abandon();
    if (error) peer?.onReset();
    else peer?.onEnd();
    done(error);
  }

  destroySoon(): void {
    if (this.writable) this.end();
    if (this.writableFinished) this.destroy();
    else this.once('finish', () => this.destroy());
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

  unref(): this {
    return this;
  }

  /** In a turn of the process. */
  #handle(act: () => void): void {
    this.#host.process.receive(act);
  }

  #onceConnected(act: () => void): void {
    if (this.connecting) this.#untilConnected.push(act);
    else act();
  }

  #touch(): void {
    this.#idle?.close();
    if (this.#idleMs > 0) this.#idle = this.#host.process.setTimeout(() => this.emit('timeout'), this.#idleMs, []);
  }
}

/** A server of `node:net` in simulated time, such as the proxy of a test. */
export class SimulatedListener extends EventEmitter implements Listener {
  listening = false;
  #port = 0;

  constructor(
    private readonly host: Host,
    onConnection?: (socket: SimulatedSocket) => void,
  ) {
    super();
    if (onConnection) this.on('connection', onConnection);
  }

  listen(port: number | Address = 0, ...rest: unknown[]): this {
    const onListening = rest.find((arg) => typeof arg === 'function') as (() => void) | undefined;
    if (onListening) this.once('listening', onListening);
    this.#port = (typeof port === 'object' ? port.port : Number(port)) || this.host.network.freePort();
    this.host.process.setImmediate(() => {
      this.listening = this.host.network.listen(this.#port, this);
      if (this.listening) this.emit('listening');
      else this.emit('error', failure('listen', 'EADDRINUSE', `127.0.0.1:${this.#port}`));
    }, []);
    return this;
  }

  accept(client: RemotePeer): Peer {
    const socket = new SimulatedSocket(this.host);
    socket.peer = client;
    this.host.process.receive(() => this.emit('connection', socket));
    return socket;
  }

  address(): object {
    return { address: '127.0.0.1', family: 'IPv4', port: this.#port };
  }

  close(onClose?: () => void): this {
    this.host.network.close(this.#port, this);
    this.listening = false;
    this.host.process.setImmediate(() => {
      this.emit('close');
      onClose?.();
    }, []);
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
