import type { RemotePeer } from '../link.js';
import type { Listener, Network, Peer } from '../network.js';
import { EPOCH_US } from '../process.js';
import type { Scheduler } from '../scheduler.js';
import { CONNECTION_COMMANDS } from './connection-commands.js';
import { RedisData, type Entry, type Subscriber } from './redis-data.js';
import { RedisEngine } from './redis-engine.js';
import { refusalOf, refusalOfWrite, type Refusal } from './refusals.js';
import type { Reply } from './replies.js';
import { CommandDecoder, encode } from './resp.js';
import { SortedSet } from './sorted-set.js';

/** How long a command takes, in microseconds: at least, and less than. */
const COMMAND_US = [8, 28] as const;

/** A Redis server on a port of the network: it runs one command after the other. */
export class SimulatedServer implements Listener {
  /** How often each command ran, by lower-case name. */
  readonly calls = new Map<string, number>();
  readonly settings = new Map<string, string>();
  readonly connections = new Set<Connection>();
  /** Its wall clock: how far it is ahead, in microseconds, and how fast it runs. */
  readonly clock = { offsetUs: 0, rate: 1 };
  /** Why it refuses commands. */
  refusal?: Refusal;
  /** Called with each command of a client that was answered. */
  onAnswered?: (args: readonly string[], reply: Reply) => void;
  data!: RedisData;
  /** Changes with each start. */
  runId = '';
  readonly #random: () => number;
  readonly #queue: (() => void)[] = [];
  #engine!: RedisEngine;
  #startedAt = 0;
  #starts = 0;
  #connections = 0;
  #isUp = false;
  #isBusy = false;
  #isPaused = false;

  constructor(
    private readonly scheduler: Scheduler,
    private readonly network: Network,
    readonly port: number,
    /** Whether it comes back with its data. */
    private readonly isPersistent: boolean,
  ) {
    this.#random = scheduler.stream(`server ${port}`);
    this.start();
  }

  get uptimeS(): number {
    return Math.floor((this.scheduler.now - this.#startedAt) / 1_000_000);
  }

  /** By its wall clock, in microseconds since 1970. */
  clockUs(): number {
    return EPOCH_US + this.clock.offsetUs + Math.floor(this.scheduler.now * this.clock.rate);
  }

  get isLoading(): boolean {
    return this.refusal === 'loading';
  }

  get isUp(): boolean {
    return this.#isUp;
  }

  /** All that it has, as it is now. */
  snapshot(): (readonly [string, Entry])[] {
    return this.data.names.map((key) => {
      const { value, expiresAt } = this.data.entry(key)!;
      return [key, { value: typeof value === 'string' ? value : new SortedSet(value.members), expiresAt }];
    });
  }

  /** @param entries what it has at first */
  start(entries: Iterable<readonly [string, Entry]> = []): void {
    this.#startedAt = this.scheduler.now;
    this.runId = `${this.port}${this.#starts++}`.padEnd(40, 'a');
    this.data = new RedisData({ nowUs: () => this.clockUs() });
    for (const [key, entry] of entries) this.data.change(key, entry);
    this.refusal = undefined;
    this.#engine = new RedisEngine(
      this.data,
      (name, args) => this.#count(name, args),
      (name) => refusalOfWrite(this.refusal, name),
    );
    this.settings.set('appendonly', this.isPersistent ? 'yes' : 'no').set('appendfsync', 'always');
    if (!this.network.listen(this.port, this)) throw new Error(`The simulated port ${this.port} is taken.`);
    this.#isUp = true;
  }

  /** As kill -9. */
  kill(): void {
    if (!this.#isUp) return;
    this.#isUp = false;
    this.#isPaused = false;
    this.#queue.length = 0;
    this.network.close(this.port, this);
    for (const connection of [...this.connections]) connection.close('reset');
  }

  restart(): void {
    this.kill();
    this.start(this.isPersistent ? this.snapshot() : []);
  }

  /** As SIGSTOP: connections stay open, and can be made, and nothing answers. */
  pause(): void {
    this.#isPaused = true;
  }

  resume(): void {
    this.#isPaused = false;
    this.#work();
  }

  accept(client: RemotePeer): Peer {
    const { scheduler } = this;
    const connection = new Connection(++this.#connections, this, client);
    this.connections.add(connection);
    return {
      get now() {
        return scheduler.now;
      },
      onBytes: (bytes) => {
        for (const args of connection.decoder.read(bytes)) this.#enqueue(() => this.#answer(connection, args));
      },
      onEnd: () => this.#enqueue(() => connection.close('end')),
      onReset: () => this.#enqueue(() => connection.close('reset')),
    };
  }

  #enqueue(run: () => void): void {
    this.#queue.push(run);
    this.#work();
  }

  #work(): void {
    if (this.#isBusy || this.#isPaused || this.#queue.length === 0) return;
    this.#isBusy = true;
    const [least, below] = COMMAND_US;
    this.scheduler.after(least + this.#random() * (below - least), () => {
      this.#isBusy = false;
      if (!this.#isPaused) this.#queue.shift()?.();
      this.#work();
    });
  }

  #answer(connection: Connection, args: readonly string[]): void {
    if (!connection.isOpen) return;
    const [name = '', ...rest] = args;
    const own = CONNECTION_COMMANDS[name.toUpperCase()];
    if (own || /^eval(sha)?$/i.test(name)) this.#count(name, rest);
    const run = () => (own ? own(this, rest, connection) : this.#engine.execute(args, connection));
    const reply = refusalOf(this.refusal, name) ?? run();
    if (reply === undefined) return;
    this.onAnswered?.(args, reply);
    this.scheduler.trace(`${this.port} ${connection.id} ${args.join(' ')} ${encode(reply)}`);
    connection.send(reply);
  }

  #count(name: string, [sub]: readonly string[]): void {
    const key = name.toLowerCase() + (WITH_SUBCOMMANDS.test(name) && sub ? `|${sub.toLowerCase()}` : '');
    this.calls.set(key, (this.calls.get(key) ?? 0) + 1);
  }
}

const WITH_SUBCOMMANDS = /^(acl|client|config|pubsub|script)$/i;

/** The end of a connection at its server. */
export class Connection implements Subscriber {
  readonly decoder = new CommandDecoder();
  /** By `CLIENT SETNAME`. */
  name = '';
  subscriptions = 0;
  isOpen = true;

  constructor(
    readonly id: number,
    private readonly server: SimulatedServer,
    private readonly client: RemotePeer,
  ) {}

  send(reply: Reply): void {
    if (!this.isOpen) return;
    this.client.onBytes(Buffer.from(encode(reply), 'latin1'));
  }

  push([kind, channel, content]: readonly [string, string, string | number]): void {
    const isNew = kind === 'subscribe' || kind === 'ssubscribe';
    this.send([kind, channel, isNew ? ++this.subscriptions : content]);
  }

  close(how: 'end' | 'reset'): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.server.connections.delete(this);
    this.server.data.leave(this);
    if (how === 'end') this.client.onEnd();
    else this.client.onReset();
  }
}
