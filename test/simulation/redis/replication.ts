import type { RemotePeer } from '../peer.js';
import { ReplyError, type Reply } from './replies.js';
import { CommandDecoder, encode } from './resp.js';
import type { Connection, SimulatedServer } from './simulated-server.js';

/** A replica, as its primary sees it. */
interface Follower {
  readonly connection: Connection;
  acknowledged: number;
  /** Whether it has acknowledged anything, and counts for WAIT. */
  isOnline: boolean;
  /** The data to send as soon as the snapshot is ready. */
  unsent?: string;
}

interface Wait {
  readonly connection: Connection;
  readonly count: number;
  readonly offset: number;
}

/** How long changes take from the primary to a replica, beyond the way through the network, in microseconds: at least, and less than. */
export type Lag = readonly [least: number, below: number];

/** How long a primary takes for a snapshot, in microseconds: at least, and less than. */
const SNAPSHOT_US = [1_000, 15_000] as const;
/** How long a replica waits before it tries to connect again. */
const RETRY_US = 1_000_000;
/** How often a replica acknowledges changes that nobody waits for. */
const ACKNOWLEDGEMENT_US = 1_000_000;
const BACKLOG_BYTES = 1_048_576;
const NO_ID = '0'.repeat(40);
const UNBLOCKED_BY_ROLE = new ReplyError(
  'UNBLOCKED force unblock from blocking operation, instance state changed (master -> replica?)',
);
const NO_WAIT_ON_REPLICA = new ReplyError(
  'ERR WAIT cannot be used with replica instances. Please also note that since Redis 4.0 if a replica is configured to be writable (which is not the default) writes to replicas are just local and are not propagated.',
);

/**
 * The part of a server, from one start to the next, in the replication of its data. A primary sends the changes of
 * commands and scripts, as commands, in a stream whose bytes are counted. A replica applies them, and passes the stream
 * on to its own replicas. After a break it continues where it was, if both have the same history; otherwise it gets all
 * data again, and loses what only it had. A primary deletes an expired key when it looks at it; a replica only treats
 * it as gone.
 */
export class Replication {
  /** The ids of the history of its data, and of the history that it has branched off from. */
  id: string;
  formerId = NO_ID;
  /** Its position in its history, in bytes. */
  offset = 0;
  /** The position at which it branched off. */
  formerOffset = -1;
  readonly #server: SimulatedServer;
  readonly #random: () => number;
  readonly #followers = new Set<Follower>();
  readonly #waits = new Set<Wait>();
  /** The changes since the last command. */
  readonly #effects: (readonly string[])[] = [];
  #backlog?: Backlog;
  #upstream?: Upstream;
  #ids = 0;

  constructor(
    server: SimulatedServer,
    private readonly runId: string,
  ) {
    this.#server = server;
    this.#random = server.scheduler.stream(`replication of ${runId}`);
    this.id = this.#newId();
  }

  /** The port of its primary; undefined: it is a primary. */
  get primaryPort(): number | undefined {
    return this.#upstream?.port;
  }

  /** Whether it is up to date, or was, before its primary became silent. */
  get isLinked(): boolean {
    return this.#upstream?.state === 'connected';
  }

  /** The ports of its replicas. */
  get replicaPorts(): number[] {
    return [...this.#followers].map(({ connection }) => connection.listeningPort);
  }

  /** @param history `new` for a server that has just started: it has no history in common with any other */
  follow(port: number, lag: Lag, history: 'own' | 'new' = 'own'): void {
    this.#upstream?.close();
    for (const { connection } of this.#waits) {
      connection.unblock(UNBLOCKED_BY_ROLE);
      connection.close('end');
    }
    this.#waits.clear();
    this.#server.data.isReplica = true;
    this.#keepBacklog();
    this.#upstream = new Upstream(this.#server, this, port, lag, this.#random, history === 'own');
  }

  /** Like `REPLICAOF NO ONE`. */
  promote(): void {
    if (!this.#upstream) return;
    this.#upstream.close();
    this.#upstream = undefined;
    this.branchOff(this.#newId());
    this.#server.data.isReplica = false;
  }

  /** The server ends. */
  close(): void {
    this.#upstream?.close();
  }

  /** The connection has ended. */
  leave(connection: Connection): void {
    for (const follower of this.#followers) if (follower.connection === connection) this.#followers.delete(follower);
    for (const wait of this.#waits) if (wait.connection === connection) this.#waits.delete(wait);
  }

  /** Sends the changes of a command: all at once, or not at all. */
  propagate(connection: Connection): void {
    const effects = this.#effects.splice(0);
    if (effects.length > 0 && !this.#upstream)
      this.pass(
        (effects.length > 1 ? [['MULTI'], ...effects, ['EXEC']] : effects).map((each) => encode(each)).join(''),
      );
    connection.seenOffset = this.offset;
  }

  /** Continues in the history by a part of the stream. */
  pass(stream: string): void {
    this.offset += stream.length;
    this.#backlog?.add(stream);
    for (const follower of this.#followers) {
      if (follower.unsent === undefined) follower.connection.write(stream);
      else follower.unsent += stream;
    }
  }

  /** A replica requests all changes from this position on. */
  serve(connection: Connection, id: string, from: number): ReplyError | undefined {
    if (this.#upstream && !this.isLinked)
      return new ReplyError("NOMASTERLINK Can't SYNC while not connected with my master");
    const follower: Follower = { connection, acknowledged: 0, isOnline: false };
    const missed = this.#isKnown(id, from) ? this.#backlog?.since(from) : undefined;
    this.#followers.add(follower);
    if (missed !== undefined) {
      connection.write(`+CONTINUE ${this.id}\r\n${missed}`);
      return undefined;
    }
    this.#keepBacklog();
    const snapshot = this.#server.data.snapshot.map((each) => encode(each)).join('');
    connection.write(`+FULLRESYNC ${this.id} ${this.offset}\r\n`);
    follower.unsent = `$${snapshot.length}\r\n${snapshot}`;
    const { scheduler } = this.#server;
    scheduler.after(within(SNAPSHOT_US, this.#random), () =>
      this.#server.enqueue(() => {
        connection.write(follower.unsent!);
        follower.unsent = undefined;
      }),
    );
    return undefined;
  }

  onAcknowledged(connection: Connection, offset: number): void {
    const follower = [...this.#followers].find((each) => each.connection === connection);
    if (!follower) return;
    Object.assign(follower, { acknowledged: offset, isOnline: true });
    for (const wait of this.#waits) {
      const replicas = this.#replicasWith(wait.offset);
      if (replicas >= wait.count) this.#end(wait, replicas);
    }
  }

  /** @returns undefined while the connection waits */
  wait(connection: Connection, count: number, timeoutMs: number): Reply | undefined {
    if (this.#upstream) return NO_WAIT_ON_REPLICA;
    const offset = connection.seenOffset;
    const replicas = this.#replicasWith(offset);
    if (replicas >= count) return replicas;
    const wait: Wait = { connection, count, offset };
    this.#waits.add(wait);
    connection.block();
    if (this.#followers.size > 0) this.pass(encode(['REPLCONF', 'GETACK', '*']));
    const { scheduler } = this.#server;
    const end = () => this.#end(wait, this.#replicasWith(offset));
    if (timeoutMs > 0) scheduler.after(timeoutMs * 1_000, () => this.#server.enqueue(end));
    return undefined;
  }

  /** Its history is another one from here on. */
  branchOff(id: string): void {
    this.formerId = this.id;
    this.formerOffset = this.offset + 1;
    this.id = id;
    this.#dropFollowers();
  }

  /** Its data are the data of another server. */
  adopt(id: string, offset: number): void {
    this.#dropFollowers();
    Object.assign(this, { id, offset, formerId: NO_ID, formerOffset: -1 });
    this.#backlog = new Backlog(offset);
  }

  get role(): Reply {
    if (this.#upstream) return ['slave', '127.0.0.1', this.#upstream.port, this.#upstream.state, this.offset];
    const replicas = [...this.#followers].map(({ connection, acknowledged }) => [
      '127.0.0.1',
      String(connection.listeningPort),
      String(acknowledged),
    ]);
    return ['master', this.offset, replicas];
  }

  /** The section of INFO. */
  info(): string {
    const ofReplica = this.#upstream && {
      master_host: '127.0.0.1',
      master_port: this.#upstream.port,
      master_link_status: this.isLinked ? 'up' : 'down',
      slave_read_only: 1,
    };
    const followers = [...this.#followers].map(({ connection, acknowledged, isOnline }, at) => [
      `slave${at}`,
      `ip=127.0.0.1,port=${connection.listeningPort},state=${isOnline ? 'online' : 'wait_bgsave'},offset=${acknowledged},lag=0`,
    ]);
    const fields = {
      role: this.#upstream ? 'slave' : 'master',
      ...ofReplica,
      connected_slaves: this.#followers.size,
      ...(Object.fromEntries(followers) as Record<string, string>),
      master_replid: this.id,
      master_replid2: this.formerId,
    };
    return Object.entries(fields)
      .map(([name, value]) => `${name}:${value}\r\n`)
      .join('');
  }

  /** Nothing is recorded on a server that never had a replica. */
  #keepBacklog(): void {
    if (this.#backlog) return;
    this.#backlog = new Backlog(this.offset);
    this.#server.data.onEffect = (effect) => this.#effects.push(effect);
  }

  #isKnown(id: string, from: number): boolean {
    return id === this.id || (id === this.formerId && from <= this.formerOffset);
  }

  #replicasWith(offset: number): number {
    return [...this.#followers].filter(({ isOnline, acknowledged }) => isOnline && acknowledged >= offset).length;
  }

  #end(wait: Wait, reply: Reply): void {
    if (this.#waits.delete(wait)) wait.connection.unblock(reply);
  }

  #dropFollowers(): void {
    for (const { connection } of this.#followers) connection.close('end');
  }

  #newId(): string {
    return `${this.runId.slice(0, 10)}${++this.#ids}`.padEnd(40, 'b');
  }
}

/** The last part of a stream. */
class Backlog {
  #text = '';

  constructor(private begin: number) {}

  add(stream: string): void {
    this.#text += stream;
    if (this.#text.length < 2 * BACKLOG_BYTES) return;
    const surplus = this.#text.length - BACKLOG_BYTES;
    this.#text = this.#text.slice(surplus);
    this.begin += surplus;
  }

  /** @returns undefined if it does not have all of that. The first byte has the number 1. */
  since(from: number): string | undefined {
    const at = from - 1 - this.begin;
    return at < 0 || at > this.#text.length ? undefined : this.#text.slice(at);
  }
}

/** The connection of a replica to its primary: the replica reconnects whenever it breaks. */
class Upstream {
  state: 'connect' | 'connecting' | 'sync' | 'connected' = 'connect';
  #isClosed = false;
  #attempts = 0;
  #peer?: RemotePeer;
  /** When the last packet has passed the lag. */
  #lastAt = 0;
  #received = '';
  #decoder = new CommandDecoder();
  /** The position of the full data that it is about to get. */
  #resync?: { readonly id: string; readonly offset: number };
  /** The commands of a transaction that has not ended. */
  #transaction?: string[][];
  #acknowledged = 0;
  #acknowledgesSoon = false;

  constructor(
    private readonly server: SimulatedServer,
    private readonly replication: Replication,
    readonly port: number,
    private readonly lag: Lag,
    private readonly random: () => number,
    /** Whether it can continue in the history of the primary, if that is its own. */
    private hasHistory: boolean,
  ) {
    this.#connect();
  }

  close(): void {
    this.#isClosed = true;
    this.#attempts++;
    this.#peer?.onEnd();
    this.#peer = undefined;
  }

  #connect(): void {
    if (this.#isClosed) return;
    this.state = 'connecting';
    const attempt = ++this.#attempts;
    const later = (run: () => void) =>
      this.#later(() => {
        if (attempt === this.#attempts) run();
      });
    const { scheduler } = this.server;
    this.server.network.connect(
      this.port,
      {
        get now() {
          return scheduler.now;
        },
        onBytes: (bytes) => later(() => this.#read(bytes)),
        onEnd: () => later(() => this.#onBroken()),
        onReset: () => later(() => this.#onBroken()),
      },
      {
        onOpen: (peer) => {
          if (attempt !== this.#attempts) peer.onEnd();
          else this.#begin(peer);
        },
        onRefused: () => later(() => this.#onBroken()),
      },
    );
  }

  #begin(peer: RemotePeer): void {
    this.#peer = peer;
    this.state = 'sync';
    this.#received = '';
    this.#decoder = new CommandDecoder();
    this.#resync = undefined;
    this.#transaction = undefined;
    const { id, offset } = this.replication;
    const begin = this.hasHistory ? [id, String(offset + 1)] : ['?', '-1'];
    this.#send(['REPLCONF', 'listening-port', String(this.server.port)]);
    this.#send(['PSYNC', ...begin]);
  }

  #send(command: readonly string[]): void {
    this.#peer?.onBytes(Buffer.from(encode(command), 'latin1'));
  }

  #acknowledge(): void {
    this.#acknowledged = this.replication.offset;
    this.#send(['REPLCONF', 'ACK', String(this.#acknowledged)]);
  }

  #acknowledgeSoon(): void {
    if (this.#acknowledgesSoon) return;
    this.#acknowledgesSoon = true;
    this.server.scheduler.after(ACKNOWLEDGEMENT_US, () => {
      this.#acknowledgesSoon = false;
      if (this.#isClosed) return;
      this.server.enqueue(() => {
        if (this.state === 'connected' && this.#acknowledged < this.replication.offset) this.#acknowledge();
      });
    });
  }

  /** In order, when the lag has passed and the server gets to it. */
  #later(run: () => void): void {
    const { scheduler } = this.server;
    this.#lastAt = Math.max(this.#lastAt, scheduler.now + within(this.lag, this.random));
    scheduler.at(this.#lastAt, () => this.server.enqueue(run));
  }

  #onBroken(): void {
    this.#attempts++;
    this.#peer?.onEnd();
    this.#peer = undefined;
    const wasConnected = this.state === 'connected';
    this.state = 'connect';
    if (wasConnected) this.#connect();
    else this.server.scheduler.after(RETRY_US, () => this.server.enqueue(() => this.#connect()));
  }

  #read(bytes: Buffer): void {
    if (this.state === 'connected') {
      this.#apply(bytes);
      return;
    }
    this.#received += bytes.toString('latin1');
    for (let end; this.state === 'sync' && (end = this.#received.indexOf('\r\n')) >= 0;) {
      const line = this.#received.slice(0, end);
      const rest = this.#received.slice(end + 2);
      if (line.startsWith('$')) {
        const size = Number(line.slice(1));
        if (rest.length < size) return;
        this.#load(rest.slice(0, size));
        this.#goOn(rest.slice(size));
        return;
      }
      this.#received = rest;
      this.#onReply(line.split(' '));
    }
  }

  #onReply([kind, id = '', offset]: readonly string[]): void {
    if (kind === '+FULLRESYNC') {
      this.#resync = { id, offset: Number(offset) };
      this.hasHistory = false;
    } else if (kind === '+CONTINUE') {
      if (id !== this.replication.id) this.replication.branchOff(id);
      this.#goOn(this.#received);
    } else if (kind!.startsWith('-')) this.#onBroken();
  }

  /** The data of the primary replace its own. */
  #load(snapshot: string): void {
    const { data } = this.server;
    data.applying(() => data.flush());
    for (const command of new CommandDecoder().read(Buffer.from(snapshot, 'latin1'))) this.server.execute(command);
    this.replication.adopt(this.#resync!.id, this.#resync!.offset);
    this.hasHistory = true;
  }

  #goOn(stream: string): void {
    this.state = 'connected';
    this.#apply(Buffer.from(stream, 'latin1'));
    this.#acknowledge();
  }

  #apply(bytes: Buffer): void {
    for (const command of this.#decoder.read(bytes)) {
      const [name] = command;
      if (name === 'MULTI') this.#transaction = [command];
      else if (this.#transaction) this.#transaction.push(command);
      else this.#execute([command]);
      if (name !== 'EXEC') continue;
      const transaction = this.#transaction!;
      this.#transaction = undefined;
      this.#execute(transaction);
    }
  }

  /** Takes no time, so that nobody sees a part of it. */
  #execute(commands: readonly string[][]): void {
    for (const command of commands) {
      if (command[0] === 'REPLCONF') this.#acknowledge();
      else if (command[0] !== 'MULTI' && command[0] !== 'EXEC') this.server.execute(command);
    }
    this.replication.pass(commands.map((each) => encode(each)).join(''));
    this.#acknowledgeSoon();
  }
}

function within([least, below]: Lag, random: () => number): number {
  return least + Math.floor(random() * (below - least));
}
