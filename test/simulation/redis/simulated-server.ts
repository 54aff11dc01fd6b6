import type { Network } from '../network.js';
import type { Listener, Peer, RemotePeer } from '../peer.js';
import { EPOCH_US } from '../process.js';
import type { Scheduler } from '../scheduler.js';
import { ClusterNode } from './cluster.js';
import { CONNECTION_COMMANDS, type ConnectionCommand } from './connection-commands.js';
import { copyOf, RedisData, type Entry, type Push, type Subscriber } from './redis-data.js';
import { RedisEngine } from './redis-engine.js';
import { refusalOf, refusalOfWrite, type Refusal } from './refusals.js';
import type { Reply } from './replies.js';
import { Replication, type Lag } from './replication.js';
import { CommandDecoder, encode, encodePush } from './resp.js';

/** How long a command takes, in microseconds: at least, and less than. */
const COMMAND_US = [8, 28] as const;

export interface ServerOptions {
  /** The port of its primary, at each start. */
  readonly replicaOf?: number;
  /** For Sentinel: it promotes the replica with the lowest one, and never one with 0. */
  readonly priority?: number;
  /** Whether it is a node of a Cluster, which considers silent nodes failed after its `cluster-node-timeout`. */
  readonly isInCluster?: boolean;
  /** Besides the settings of every server. */
  readonly commands?: Readonly<Record<string, ConnectionCommand>>;
}

/** A Redis server on a port of the network: it runs one command after the other. */
export class SimulatedServer implements Listener {
  /** How often each command ran since it started, by lower-case name. */
  readonly calls = new Map<string, number>();
  readonly connections = new Set<Connection>();
  /** Called when it begins to answer, or stops. */
  readonly watchers = new Set<() => void>();
  /** Its wall clock: how far it is ahead, in microseconds, and its rate. */
  readonly clock = { offsetUs: 0, rate: 1 };
  /** Why it refuses commands. */
  refusal?: Refusal;
  /** Called with each command of a client that was answered. */
  onAnswered?: (args: readonly string[], reply: Reply) => void;
  /**
   * Called when it has become a primary.
   * @param former the port of its former primary, if it had one
   */
  onPromoted?: (former?: number) => void;
  data!: RedisData;
  replication!: Replication;
  readonly cluster?: ClusterNode;
  /** How long changes take to a replica. */
  lag: Lag = [0, 1];
  /** Changes with each start. */
  runId = '';
  readonly #random: () => number;
  readonly #queue: (() => void)[] = [];
  #engine!: RedisEngine;
  readonly #configured = new Map<string, string>();
  #startedAt = 0;
  #starts = 0;
  #connections = 0;
  #isUp = false;
  #isBusy = false;
  #isPaused = false;
  /** The data that SAVE has written. */
  #snapshot: readonly (readonly [string, Entry])[] = [];

  constructor(
    readonly scheduler: Scheduler,
    readonly network: Network,
    readonly port: number,
    /** Whether it comes back with its data, and not with its last snapshot. */
    private readonly isPersistent: boolean,
    private readonly options: ServerOptions = {},
  ) {
    this.#random = scheduler.stream(`server ${port}`);
    if (options.isInCluster) this.cluster = new ClusterNode(this);
    this.start();
  }

  get isAnswering(): boolean {
    return this.#isUp && !this.#isPaused;
  }

  /**
   * Its current whole second, minus the one in which it started: so this is one soon after a start late in a second.
   */
  get uptimeS(): number {
    const second = (us: number) => Math.floor((EPOCH_US + us) / 1_000_000);
    return second(this.scheduler.now) - second(this.#startedAt);
  }

  /** Changes settings like a configuration file: settings of CONFIG SET last until it restarts. */
  configure(settings: Iterable<readonly [name: string, value: string]>): void {
    for (const [name, value] of settings) {
      this.#configured.set(name, value);
      this.data.settings.set(name, value);
    }
  }

  get priority(): number {
    return this.options.priority ?? 100;
  }

  /** Follows a primary, like `REPLICAOF`. */
  follow(primary: { readonly port: number }, lag: Lag = this.lag): void {
    this.lag = lag;
    if (this.replication.primaryPort !== primary.port) this.replication.follow(primary.port, lag);
  }

  /** Becomes a primary, like `REPLICAOF NO ONE`. */
  promote(): void {
    const former = this.replication.primaryPort;
    this.replication.promote();
    this.onPromoted?.(former);
  }

  /** Whether it replicates no other server. */
  get isPrimary(): boolean {
    return this.replication.primaryPort === undefined;
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

  /** @param entries its initial data */
  start(entries: Iterable<readonly [string, Entry]> = []): void {
    this.#startedAt = this.scheduler.now;
    this.calls.clear();
    this.runId = `${this.port}${this.#starts++}`.padEnd(40, 'a');
    this.data = new RedisData({ nowUs: () => this.clockUs() });
    for (const [key, entry] of entries) this.data.change(key, copyOf(entry));
    this.refusal = undefined;
    this.#engine = new RedisEngine(
      this.data,
      (name, args) => this.#count(name, args),
      (name) => refusalOfWrite(this.refusal, name),
      this.cluster && ((name, args) => this.cluster!.refusalOfScript(name, args)),
    );
    for (const [name, value] of this.#configured) this.data.settings.set(name, value);
    if (this.isPersistent) this.data.settings.set('appendonly', 'yes');
    this.replication = new Replication(this, this.runId);
    if (!this.network.listen(this.port, this)) throw new Error(`The simulated port ${this.port} is taken.`);
    this.#isUp = true;
    const { replicaOf } = this.options;
    if (replicaOf !== undefined) this.replication.follow(replicaOf, this.lag, 'new');
    this.cluster?.onStart(this.data);
    this.#tellWatchers();
  }

  /** Like kill -9. */
  kill(): void {
    if (!this.#isUp) return;
    this.#isUp = false;
    this.#isPaused = false;
    this.#queue.length = 0;
    this.#tellWatchers();
    this.replication.close();
    this.network.close(this.port, this);
    for (const connection of [...this.connections]) connection.close('reset');
  }

  restart(): void {
    this.kill();
    this.start(this.isPersistent ? this.data.copy() : this.#snapshot);
  }

  save(): void {
    this.#snapshot = this.data.copy();
  }

  /** Like SIGSTOP: connections stay open, new ones can be made, and nothing answers. */
  pause(): void {
    this.#isPaused = true;
    this.#tellWatchers();
  }

  resume(): void {
    this.#isPaused = false;
    this.#tellWatchers();
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
        for (const args of connection.decoder.read(bytes)) this.enqueue(() => this.#answer(connection, args));
      },
      onEnd: () => this.enqueue(() => connection.close('end')),
      onReset: () => this.enqueue(() => connection.close('reset')),
    };
  }

  /** Runs a command of the primary. */
  execute(command: readonly string[]): void {
    this.data.applying(() => this.#engine.execute(command));
  }

  enqueue(run: () => void): void {
    if (!this.#isUp) return;
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
    if (connection.isBlocked) {
      connection.deferred.push(args);
      return;
    }
    const [name = '', ...rest] = args;
    const command = name.toUpperCase();
    connection.command = name.toLowerCase();
    const own = this.cluster?.commands[command] ?? this.options.commands?.[command] ?? CONNECTION_COMMANDS[command];
    if (own || /^eval(sha)?$/i.test(name)) this.#count(name, rest);
    const refusal = refusalOf(this.refusal, name) ?? (own ? undefined : this.cluster?.refusalOf(args, connection));
    const reply = refusal ?? (own ? own(this, rest, connection) : this.#engine.execute(args, connection));
    this.replication.propagate(connection);
    if (reply === undefined) return;
    this.onAnswered?.(args, reply);
    this.scheduler.trace(`${this.port} ${connection.id} ${args.join(' ')} ${encode(reply)}`);
    connection.send(reply);
  }

  #tellWatchers(): void {
    for (const watcher of this.watchers) watcher();
  }

  /** What a connection received while it was blocked comes first. */
  resumeAfterBlock(connection: Connection): void {
    this.#queue.unshift(...connection.deferred.splice(0).map((args) => () => this.#answer(connection, args)));
    this.#work();
  }

  #count(name: string, [sub]: readonly string[]): void {
    const key = name.toLowerCase() + (WITH_SUBCOMMANDS.test(name) && sub ? `|${sub.toLowerCase()}` : '');
    this.calls.set(key, (this.calls.get(key) ?? 0) + 1);
  }
}

const WITH_SUBCOMMANDS = /^(acl|client|config|pubsub|script)$/i;

/** The server's end of a connection. */
export class Connection implements Subscriber {
  readonly decoder = new CommandDecoder();
  /** By `CLIENT SETNAME`. */
  name = '';
  subscriptions = 0;
  shardSubscriptions = 0;
  isOpen = true;
  isBlocked = false;
  /** The commands that came since then. */
  readonly deferred: (readonly string[])[] = [];
  /** The name of the last one. */
  command = '';
  /** Since `READONLY`. */
  isReadOnly = false;
  /** Since `ASKING`, for one command. */
  isAsking = false;
  /** Since `HELLO 3`. */
  speaksResp3 = false;
  /** How far it has seen the changes: WAIT waits for that. */
  seenOffset = 0;
  /** The port of the replica that it belongs to. */
  listeningPort = 0;

  constructor(
    readonly id: number,
    private readonly server: SimulatedServer,
    private readonly client: RemotePeer,
  ) {}

  send(reply: Reply): void {
    this.write(encode(reply, this.speaksResp3 ? 3 : 2));
  }

  write(text: string): void {
    if (!this.isOpen) return;
    this.client.onBytes(Buffer.from(text, 'latin1'));
  }

  /** Its commands wait until then. */
  block(): void {
    this.isBlocked = true;
  }

  unblock(reply: Reply): void {
    this.isBlocked = false;
    this.send(reply);
    this.server.resumeAfterBlock(this);
  }

  push(message: Push): void {
    const [kind, channel] = message;
    if (kind === 'sunsubscribe') this.tell([kind, channel, --this.shardSubscriptions]);
    else if (kind === 'ssubscribe') this.tell([kind, channel, ++this.shardSubscriptions]);
    else this.tell(kind.endsWith('subscribe') ? [kind, channel, ++this.subscriptions] : message);
  }

  /** Sends something that is not a reply: RESP3 distinguishes it from replies. */
  tell(message: readonly Reply[]): void {
    this.write(this.speaksResp3 ? encodePush(message) : encode(message));
  }

  close(how: 'end' | 'reset'): void {
    if (!this.isOpen) return;
    this.isOpen = false;
    this.server.connections.delete(this);
    this.server.data.leave(this);
    this.server.replication.leave(this);
    if (how === 'end') this.client.onEnd();
    else this.client.onReset();
  }
}
