import type { ConnectionCommand } from './connection-commands.js';
import { keySlot, keysOf, SLOTS } from './cluster-keys.js';
import type { RedisData } from './redis-data.js';
import { OK, ReplyError, Status, type Reply } from './replies.js';
import type { Connection, SimulatedServer } from './simulated-server.js';

/** How long a message between nodes takes, in microseconds: at least, and less than. */
const BUS_US = [50, 20_000] as const;
/**
 * How long a node refuses all commands after its Cluster became complete again, in microseconds: at least, and less
 * than.
 */
const REJOIN_US = [20_000, 200_000] as const;
/** How long a replica waits before it replaces a failed master, in microseconds: at least, and less than. */
const ELECTION_US = [500_000, 1_000_000] as const;
const DOWN = new ReplyError('CLUSTERDOWN The cluster is down');
const UNSERVED = new ReplyError('CLUSTERDOWN Hash slot not served');
const CROSS_SLOT = new ReplyError("CROSSSLOT Keys in request don't hash to the same slot");
const HALF_MOVED = new ReplyError('TRYAGAIN Multiple keys request during rehashing of slot');
const NOT_LOCAL = new ReplyError('ERR Script attempted to access a non local key in a cluster node');

/** A node, as it describes itself to others. */
interface Config {
  readonly id: string;
  readonly port: number;
  /** If two nodes claim a slot, the later one has it. */
  readonly epoch: number;
  /** The id of its master, if it is a replica. */
  readonly masterId?: string;
  /** Those that it owns. */
  readonly slots: readonly Range[];
}

/** Slots of one node. */
interface Range {
  readonly first: number;
  readonly last: number;
  readonly id: string;
}

/** The knowledge of a node about another one. */
type Known = Omit<Config, 'slots'>;

/**
 * The part of a server in a Cluster: what it knows about the slots and the other nodes, and where it sends clients
 * whose keys are elsewhere. Nodes report changes to each other, which takes a moment each time. They see at once which
 * nodes answer, but consider a node failed only after the time limit. All this survives a restart.
 */
export class ClusterNode {
  readonly id: string;
  /** The others. */
  readonly #known = new Map<string, Known>();
  /** The ids of those that have the slots. */
  readonly #owners: (string | undefined)[] = Array.from({ length: SLOTS });
  /** The same as ranges, until it changes. */
  #ranges?: readonly Range[];
  readonly #migrating = new Map<number, string>();
  readonly #importing = new Map<number, string>();
  readonly #failed = new Set<string>();
  readonly #watched = new Set<string>();
  /** The arrival time of the last message to each port. */
  readonly #arrivals = new Map<number, number>();
  readonly #random: () => number;
  #epoch = 0;
  #masterId?: string;
  #isOk = false;
  /** The connection whose command runs. */
  #asker: Pick<Connection, 'isAsking' | 'isReadOnly'> = { isAsking: false, isReadOnly: false };
  /** Messages of publish/subscribe that it has sent to other nodes. */
  readonly #sent = { publish: 0, publishshard: 0 };

  constructor(private readonly server: SimulatedServer) {
    this.id = `${server.port}`.padEnd(40, 'c');
    this.#random = server.scheduler.stream(`cluster ${server.port}`);
  }

  readonly commands: Readonly<Record<string, ConnectionCommand>> = {
    CLUSTER: (_server, args) => this.execute(args),
    READONLY: (_server, _args, connection) => ((connection.isReadOnly = true), OK),
    ASKING: (_server, _args, connection) => ((connection.isAsking = true), OK),
    MIGRATE: (_server, args) => this.migrate(args),
  };

  /** The server starts, with data that do not know about a Cluster yet. */
  onStart(data: RedisData): void {
    data.broadcast = (kind, channel, text) => this.#broadcast(kind, channel, text);
    this.#isOk = false;
    this.#look();
    this.#check();
    if (this.#masterId !== undefined) this.#follow(this.#masterId);
    this.#tell();
  }

  /** @returns why the command does not run here, if it does not */
  refusalOf([name = '', ...args]: readonly string[], connection: Connection): ReplyError | undefined {
    this.#asker = { isAsking: connection.isAsking, isReadOnly: connection.isReadOnly };
    connection.isAsking = false;
    return this.#refusalOf(name, args);
  }

  /** @returns why a script may not run a command, if it may not */
  refusalOfScript(name: string, args: readonly string[]): ReplyError | undefined {
    return this.#refusalOf(name, args) && NOT_LOCAL;
  }

  #refusalOf(name: string, args: readonly string[]): ReplyError | undefined {
    const keys = keysOf(name, args);
    if (keys.length === 0) return undefined;
    const slot = keySlot(keys[0]!);
    if (keys.some((key) => keySlot(key) !== slot)) return CROSS_SLOT;
    const owner = this.#owners[slot];
    if (owner === undefined) return UNSERVED;
    if (!this.#isOk) return DOWN;
    const isOfChannels = /^s(un)?subscribe$|^spublish$/i.test(name);
    const missing = isOfChannels ? 0 : keys.filter((key) => this.server.data.entry(key) === undefined).length;
    const target = this.#migrating.get(slot);
    const { isAsking, isReadOnly } = this.#asker;
    if (owner === this.id && target !== undefined && missing > 0)
      return missing < keys.length ? HALF_MOVED : this.#redirection('ASK', slot, target);
    if (owner !== this.id && this.#importing.has(slot) && isAsking)
      return new Set(keys).size > 1 && missing > 0 ? HALF_MOVED : undefined;
    if (owner === this.id || (isReadOnly && owner === this.#masterId)) return undefined;
    return this.#redirection('MOVED', slot, owner);
  }

  /** Another node reports its state. */
  hear({ slots, ...sender }: Config, known: readonly number[] = []): void {
    for (const port of known) if (![this.server.port, sender.port, ...this.#ports].includes(port)) this.#meet(port);
    this.#learn(sender);
    const lost = new Set<string | undefined>();
    /** Slots that the sender considers its own because it does not know about them yet. */
    const newOwners = new Set<string>();
    for (const { first, last } of slots)
      for (let slot = first; slot <= last; slot++) {
        const owner = this.#owners[slot];
        if (owner === sender.id) continue;
        if (owner !== undefined && this.#epochOf(owner) > sender.epoch) newOwners.add(owner);
        else {
          lost.add(owner);
          this.#assign(slot, sender.id);
        }
      }
    for (const owner of newOwners) {
      const newer = this.#configOf(owner);
      this.#send(sender.port, (node) => node.hear(newer));
    }
    // A master that has lost its last slot, and its replicas, follow the node that has it now.
    const own = this.#masterId ?? this.id;
    if (lost.has(own) && !this.#masters.has(own)) this.#replicate(sender.id);
    this.#check();
  }

  /** From now on it has the slots of its master. */
  takeOver(): void {
    const former = this.#masterId;
    if (former === undefined) return;
    this.server.promote();
    this.#masterId = undefined;
    this.#bumpEpoch();
    for (const { first, last } of this.#slotsOf(former))
      for (let slot = first; slot <= last; slot++) this.#assign(slot, this.id);
    this.#check();
    this.#tell();
  }

  /** Whether it answers to clients. */
  get isServing(): boolean {
    return this.#isOk;
  }

  owns(slot: number): boolean {
    return this.#owners[slot] === this.id;
  }

  get #ports(): number[] {
    return [...this.#known.values()].map(({ port }) => port);
  }

  #epochOf(id: string): number {
    return id === this.id ? this.#epoch : (this.#known.get(id)?.epoch ?? 0);
  }

  #bumpEpoch(): void {
    this.#epoch = Math.max(this.#epoch, ...[...this.#known.values()].map(({ epoch }) => epoch)) + 1;
  }

  #slotsOf(id: string): readonly Range[] {
    return this.#assigned.filter((range) => range.id === id);
  }

  #configOf(id: string): Config {
    const { port } = this.server;
    const own = { id, port, epoch: this.#epoch, masterId: this.#masterId };
    return { ...(id === this.id ? own : this.#known.get(id)!), slots: this.#slotsOf(id) };
  }

  #redirection(kind: 'MOVED' | 'ASK', slot: number, id: string): ReplyError {
    return new ReplyError(`${kind} ${slot} 127.0.0.1:${this.#known.get(id)!.port}`);
  }

  #after([least, below]: readonly [number, number], run: () => void): void {
    this.server.scheduler.after(least + this.#random() * (below - least), run);
  }

  /**
   * Messages arrive in order.
   * @param run at the other node, if it exists when the message arrives
   */
  #send(port: number, run: (node: ClusterNode) => void): void {
    const { scheduler } = this.server;
    const [least, below] = BUS_US;
    const inOrder = this.#arrivals.get(port) ?? 0;
    const at = Math.max(inOrder, scheduler.now + Math.floor(least + this.#random() * (below - least)));
    this.#arrivals.set(port, at);
    scheduler.at(at, () => {
      const other = serverOn(this.server, port);
      other?.enqueue(() => other.cluster && run(other.cluster));
    });
  }

  /** Reports its state to all others. */
  #tell(): void {
    const config = this.#configOf(this.id);
    for (const { port } of this.#known.values()) this.#send(port, (node) => node.hear(config, this.#ports));
  }

  #meet(port: number): void {
    const config = this.#configOf(this.id);
    this.#send(port, (other) => {
      other.hear(config, this.#ports);
      other.#tell();
    });
  }

  #learn(node: Known): void {
    this.#known.set(node.id, node);
    if (this.#watched.has(node.id)) return;
    this.#watched.add(node.id);
    serverOn(this.server, node.port)?.watchers.add(() => this.#look());
    this.#send(node.port, (other) => other.hear(this.#configOf(this.id)));
  }

  /** Checks which nodes answer. */
  #look(): void {
    const { scheduler, data } = this.server;
    const timeoutMs = Number(data.settings.get('cluster-node-timeout'));
    for (const { id, port } of this.#known.values()) {
      const isFailed = this.#failed.has(id);
      if (isAnswering(this.server, port) !== isFailed) continue;
      scheduler.after(timeoutMs * 1_000 * (1 + this.#random() / 2), () => {
        if (isAnswering(this.server, port) !== isFailed) return;
        if (isFailed) this.#failed.delete(id);
        else this.#failed.add(id);
        this.#check();
        this.#tell();
      });
    }
  }

  /** Whether it can serve clients: all slots are served, or at least a majority of the masters is there. */
  get #isServed(): boolean {
    const masters = this.#masters;
    const reached = [...masters].filter((id) => !this.#failed.has(id)).length;
    const needsAll = this.server.data.settings.get('cluster-require-full-coverage') === 'yes';
    const isComplete = reached === masters.size && this.#count(() => true) === SLOTS;
    return reached > masters.size / 2 && (isComplete || !needsAll);
  }

  /** Whether it serves clients, and whether its master has failed. */
  #check(): void {
    if (!this.#isServed) this.#isOk = false;
    else if (!this.#isOk) this.#after(REJOIN_US, () => (this.#isOk ||= this.#isServed));
    const master = this.#masterId;
    if (master === undefined || !this.#failed.has(master)) return;
    this.#after(ELECTION_US, () =>
      this.server.enqueue(() => {
        if (this.#masterId === master && this.#failed.has(master)) this.takeOver();
      }),
    );
  }

  #assign(slot: number, id: string): void {
    const isLost = this.#owners[slot] === this.id && id !== this.id;
    this.#owners[slot] = id;
    this.#ranges = undefined;
    if (!isLost) return;
    this.#migrating.delete(slot);
    const { data } = this.server;
    for (const [channel, subscribers] of data.shardChannels) {
      if (keySlot(channel) !== slot) continue;
      for (const subscriber of subscribers) subscriber.push(['sunsubscribe', channel, 0]);
      data.shardChannels.delete(channel);
    }
  }

  #replicate(id: string): void {
    if (id === this.id) return;
    this.#masterId = id;
    this.#follow(id);
    this.#tell();
  }

  #follow(id: string): void {
    this.server.follow({ port: this.#known.get(id)!.port });
  }

  /** Sends a message to all nodes, and a message of a shard to its replicas. */
  #broadcast(kind: string, channel: string, text: string): void {
    const isOfShard = kind === 'smessage';
    const meant = [...this.#known.values()].filter(({ masterId }) => !isOfShard || masterId === this.id);
    this.#sent[isOfShard ? 'publishshard' : 'publish'] += meant.length;
    for (const { port } of meant)
      this.#send(port, ({ server: { data } }) =>
        data.deliver(isOfShard ? data.shardChannels : data.channels, kind, channel, text),
      );
  }

  #keysIn(slot: number): string[] {
    return this.server.data.names.filter((key) => keySlot(key) === slot);
  }

  /** Answers `CLUSTER …`. */
  execute([kind = '', ...args]: readonly string[]): Reply {
    switch (kind.toUpperCase()) {
      case 'MYID':
        return this.id;
      case 'GETKEYSINSLOT':
        return this.#keysIn(Number(args[0])).slice(0, Number(args[1]));
      case 'SET-CONFIG-EPOCH':
        this.#epoch = Number(args[0]);
        return OK;
      case 'ADDSLOTS':
        for (const slot of args) this.#assign(Number(slot), this.id);
        this.#check();
        this.#tell();
        return OK;
      case 'MEET':
        this.#meet(Number(args[1]));
        return OK;
      case 'REPLICATE':
        if (!this.#known.has(args[0]!)) return new ReplyError(`ERR Unknown node ${args[0]}`);
        this.#replicate(args[0]!);
        return OK;
      case 'FAILOVER':
        this.takeOver();
        return OK;
      case 'SETSLOT':
        return this.#setSlot(Number(args[0]), args[1]!, args[2]!);
      case 'SLOTS':
        return this.#assigned.map(({ first, last, id }) => [first, last, ...this.#shardOf(id)]);
      case 'NODES':
        return [this.id, ...this.#known.keys()].map((id) => this.#lineOf(id)).join('');
      case 'INFO':
        return this.#info();
      default:
        return new ReplyError(`ERR unknown subcommand '${kind}'. Try CLUSTER HELP.`);
    }
  }

  #setSlot(slot: number, kind: string, id: string): Reply {
    switch (kind.toUpperCase()) {
      case 'MIGRATING':
        this.#migrating.set(slot, id);
        return OK;
      case 'IMPORTING':
        this.#importing.set(slot, id);
        return OK;
      default:
        this.#assign(slot, id);
        if (id === this.id && this.#importing.delete(slot)) {
          this.#bumpEpoch();
          this.#tell();
        }
        return OK;
    }
  }

  /** `MIGRATE 127.0.0.1 6379 key 0 5000`, or with many keys after `KEYS`: takes no time here. */
  migrate([, port, key, , , ...options]: readonly string[]): Reply {
    const { data } = this.server;
    const keys = (key === '' ? options.slice(1) : [key!]).filter((each) => data.entry(each) !== undefined);
    if (keys.length === 0) return new Status('NOKEY');
    const target = serverOn(this.server, Number(port));
    if (!target?.isAnswering) return new ReplyError('IOERR error or timeout reading from target instance');
    for (const each of keys) {
      target.data.change(each, data.entry(each));
      data.change(each, undefined);
    }
    return OK;
  }

  get #assigned(): readonly Range[] {
    if (this.#ranges) return this.#ranges;
    const ranges: { first: number; last: number; id: string }[] = [];
    this.#owners.forEach((id, slot) => {
      const range = ranges.at(-1);
      if (id === undefined) return;
      if (range?.id === id && range.last === slot - 1) range.last = slot;
      else ranges.push({ first: slot, last: slot, id });
    });
    return (this.#ranges = ranges);
  }

  #count(isMeant: (id: string) => boolean): number {
    return this.#assigned.reduce((sum, { first, last, id }) => sum + (isMeant(id) ? last - first + 1 : 0), 0);
  }

  /** Those that have slots. */
  get #masters(): ReadonlySet<string> {
    return new Set(this.#assigned.map(({ id }) => id));
  }

  /** A master and its replicas, as in `CLUSTER SLOTS`. */
  #shardOf(master: string): Reply[] {
    const all = [this.#configOf(this.id), ...this.#known.values()];
    const replicas = all.filter(({ id, masterId }) => masterId === master && !this.#failed.has(id));
    return [...all.filter(({ id }) => id === master), ...replicas].map(({ id, port }) => ['127.0.0.1', port, id, []]);
  }

  #lineOf(id: string): string {
    const { port, epoch, masterId } = this.#configOf(id);
    const flags = [
      ...(id === this.id ? ['myself'] : []),
      masterId === undefined ? 'master' : 'slave',
      ...(this.#failed.has(id) ? ['fail'] : []),
    ];
    const slots = this.#slotsOf(id).map(({ first, last }) => (first === last ? `${first}` : `${first}-${last}`));
    const address = `127.0.0.1:${port}@${port + 10_000}`;
    return `${[id, address, flags.join(','), masterId ?? '-', 0, 0, epoch, 'connected', ...slots].join(' ')}\n`;
  }

  #info(): string {
    const fields = {
      cluster_state: this.#isOk ? 'ok' : 'fail',
      cluster_slots_ok: this.#count((id) => !this.#failed.has(id)),
      cluster_known_nodes: this.#known.size + 1,
      cluster_stats_messages_publish_sent: this.#sent.publish,
      cluster_stats_messages_publishshard_sent: this.#sent.publishshard,
    };
    return Object.entries(fields)
      .map(([name, value]) => `${name}:${value}\r\n`)
      .join('');
  }
}

function isAnswering(server: SimulatedServer, port: number): boolean {
  return serverOn(server, port)?.isAnswering ?? false;
}

/** The server that listens on a port, if there is one. */
function serverOn({ network }: SimulatedServer, port: number): SimulatedServer | undefined {
  return network.listenerOf(port) as SimulatedServer | undefined;
}
