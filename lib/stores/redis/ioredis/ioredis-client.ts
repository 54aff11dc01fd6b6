import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { nextTick, outsideOfCalls } from '../../../core/time/event-loop.js';
import { checkMade, isClient } from '../client/check-source.js';
import { clusterSlot, SLOTS } from '../client/cluster-slot.js';
import { credentialsOf } from '../client/credentials.js';
import { faultOf, isReplyError, loadIoredis, problemOfIoredis } from './ioredis.js';
import { needsLogin, refusesCredentials, refusesDatabase } from '../client/problem-of.js';
import {
  SUBSCRIBE_LIMIT_MS,
  type Answer,
  type ConnectionFailure,
  type RedisClient,
  type RedisClientListener,
  type Route,
  type ScriptCall,
  type ShardedSubscription,
  type Subscription,
  type SubscriptionListener,
} from '../client/redis-client.js';
import type { Cluster, IoredisClient, Redis, RedisOptions, RedisSource } from '../client/source.js';

/**
 * Options of the clients that this library makes. A command fails as soon as its connection breaks, and the client does not
 * send it again, because a late acquire would leave an orphan; the backend decides what is retried.
 */
const OWN_CLIENT = {
  lazyConnect: true,
  enableOfflineQueue: false,
  autoResendUnfulfilledCommands: true, // with 0 retries all fail at the first close; `false` would never settle them
  maxRetriesPerRequest: 0,
  connectTimeout: 2_000,
  sentinelCommandTimeout: 2_000, // or a Sentinel that hangs would be waited for without end, also by a client that was closed
  disconnectTimeout: 100, // or the process would live for 2 s after a close while Redis is down
  maxLoadingRetryTime: 2_000, // while it loads its data it is asked that often, or it would count as silent
  retryStrategy: (attempt: number) => Math.min(attempt * 50, 1_000),
} satisfies RedisOptions;

/** Options of a duplicate. It may send nothing again: WAIT answers for the writes of its own connection. */
const DUPLICATE = {
  lazyConnect: true,
  enableOfflineQueue: false,
  enableAutoPipelining: false,
  autoResendUnfulfilledCommands: true, // as above
  maxRetriesPerRequest: 0,
  reconnectOnError: null,
  commandTimeout: undefined, // WAIT may take longer than any other command; each round has a limit
  socketTimeout: undefined,
} satisfies RedisOptions;

/** Options of a subscriber: a connection of its own, so that the client it is made from is neither changed nor blocked. */
const SUBSCRIBER = {
  lazyConnect: true,
  socketTimeout: SUBSCRIBE_LIMIT_MS, // a subscription that hangs is made anew
  autoResubscribe: false, // the inbox reports when it listens again, so it subscribes itself
} satisfies RedisOptions;

/** Options of a subscriber to sharded messages. */
const SHARD_SUBSCRIBER = {
  ...SUBSCRIBER,
  keyPrefix: '', // it would be put before channels, too: they count as keys
  enableOfflineQueue: false,
  enableAutoPipelining: false,
  enableReadyCheck: false, // it can subscribe while the server loads its data
  reconnectOnError: null,
  retryStrategy: () => null, // whoever still waits has the next one made
} satisfies RedisOptions;

const ONE_SERVER: Route = [0];

/** So many keys and arguments are handed to the client one by one: those of one lock. */
const MOST_SPREAD = 12;

/**
 * Opens a client; connects to nothing yet.
 * @param clientName the name in `CLIENT LIST` of a client that is made here, unless its options have one
 * @throws LockOptionsError when ioredis is not installed
 * @throws what the user's function throws
 */
export async function openClient(source: RedisSource, clientName: string): Promise<RedisClient> {
  const { Redis } = await loadIoredis();
  if (typeof source === 'function') {
    const made: unknown = await source();
    checkMade(made);
    return new IoredisAdapter(made, true);
  }
  const own = { ...OWN_CLIENT, connectionName: clientName };
  if (typeof source === 'string') return new IoredisAdapter(new Redis(source, own), true);
  if (isClient(source)) return new IoredisAdapter(source);
  return new IoredisAdapter(new Redis({ ...own, ...source }), true);
}

/** A client of ioredis, 5.4 or later: for one server, a master that Sentinel names, or a Cluster. */
export class IoredisAdapter implements RedisClient {
  readonly name: string;
  readonly isCluster: boolean;
  readonly #client: IoredisClient;
  #listener?: RedisClientListener;
  #failure?: ConnectionFailure;
  /** The last connection that was given up because it is not in the right database. */
  #givenUp?: Duplex;
  /** The streams of a Cluster's masters whose writes wait for the end of this tick. */
  #corked: readonly Duplex[] = [];
  /** The adapters of a Cluster's masters. */
  readonly #masters = new WeakMap<Redis, IoredisAdapter>();

  /** @param cluster the Cluster, if the client is that of one of its nodes */
  constructor(
    client: IoredisClient,
    readonly isOwned = false,
    private readonly cluster?: Cluster,
  ) {
    this.#client = client;
    this.isCluster = client.isCluster;
    this.name = nameOf(client);
  }

  get connectionName(): string | undefined {
    const options = this.isCluster ? this.#cluster.options.redisOptions : this.#single.options;
    return options?.connectionName ?? undefined;
  }

  get keyPrefix(): string {
    return this.#client.options.keyPrefix ?? '';
  }

  get database(): number {
    return this.isCluster ? 0 : (this.#single.condition?.select ?? 0);
  }

  get forgetsOpenCommands(): boolean {
    return this.#single.options.autoResendUnfulfilledCommands === false;
  }

  get isReady(): boolean {
    return this.#client.status === 'ready' && !this.#isGivenUp;
  }

  get isEnded(): boolean {
    return this.#client.status === 'end';
  }

  get status(): string {
    return this.#client.status;
  }

  get failure(): ConnectionFailure | undefined {
    return this.#failure;
  }

  get generation(): unknown {
    return this.#single.stream; // a Cluster has none of its own
  }

  get received(): number {
    return (this.#single.stream as Partial<Socket> | undefined)?.bytesRead ?? 0;
  }

  // One handler for each event: several registrations may share a client, and Node warns of more than ten handlers.
  listen(listener: RedisClientListener): void {
    this.#listener = listener;
    this.#client.on('ready', this.#onReady).on('close', this.#onClose).on('end', this.#onEnd);
    if (this.isOwned) this.#client.on('connect', this.#onConnect);
    if (this.isCluster) {
      this.#client.on('node error', this.#onNodeError).on('+node', askQuietly);
      this.#cluster.nodes().forEach(askQuietly);
    }
    // A client of the user keeps its way of reporting errors: with a handler here it would not report unhandled ones.
    if (this.isOwned) this.#client.on('error', this.#onError);
  }

  readonly #onConnect = (): void => this.#listener!.accepted();

  readonly #onReady = (): void => {
    if (this.#isGivenUp) return; // without its ready check the client still becomes ready for a moment
    this.#failure = undefined;
    this.#listener!.ready();
  };

  readonly #onClose = (): void => {
    const error = this.isOwned ? undefined : this.#single.stream?.errored;
    if (error) this.#failure = { problem: problemOfIoredis(error, this.#client) };
    this.#listener!.closed();
  };

  readonly #onEnd = (): void => this.#listener!.ended();

  readonly #onError = (error: Error): void => {
    if (this.#isGivenUp) return; // a consequence of giving it up
    const failure = { problem: problemOfIoredis(error, this.#client), refused: refusedBy(error, this.#client) };
    // An error of the Cluster itself only says that all its nodes failed.
    if (this.isCluster) this.#failure ??= failure;
    else this.#failure = failure;
    // Whatever the reason, the client would go on in database 0, where other processes do not look for the lock.
    if (isOfSelect(error)) {
      this.#givenUp = this.#single.stream;
      this.#givenUp?.destroy();
    }
    this.#listener!.failed();
  };

  readonly #onNodeError = (error: Error, node: string): void => {
    if (!this.isReady) this.#failure = { problem: `${node}: ${problemOfIoredis(error, this.#client)}` };
  };

  connect(): void {
    if (this.#client.status === 'wait') this.#client.connect().catch(() => {}); // reported by the status
  }

  drop(reason: string): void {
    if (this.isCluster) this.#cluster.refreshSlotsCache();
    else this.#single.stream?.destroy(new Error(reason));
  }

  close(): void {
    this.#client.off('ready', this.#onReady).off('close', this.#onClose).off('end', this.#onEnd);
    this.#client.off('connect', this.#onConnect).off('node error', this.#onNodeError).off('+node', askQuietly);
    if (this.isOwned) this.#client.disconnect();
  }

  routeOf(key: string): Route {
    if (!this.isCluster) return ONE_SERVER;
    const slot = clusterSlot(this.keyPrefix + key);
    // Both block: a node that hangs answers for no slot, and open commands may yet run on the slot's next node.
    const node = this.#cluster.slots[slot]?.[0];
    return node === undefined ? [slot] : [slot, node];
  }

  run(call: ScriptCall): void {
    if (this.isCluster) this.#writeTogether();
    this.#run(call, true);
  }

  /** Has what is sent to a node of a Cluster in one tick be one write: a command there is for one slot, so there are many. */
  #writeTogether(): void {
    if (this.#corked.length > 0) return;
    this.#corked = this.#cluster.nodes('master').flatMap(({ stream }) => (stream as Duplex | undefined) ?? []);
    for (const stream of this.#corked) stream.cork();
    nextTick(() => {
      const corked = this.#corked;
      this.#corked = [];
      for (const stream of corked) stream.uncork();
    });
  }

  #run(call: ScriptCall, bySha: boolean): void {
    const { script, keys, args } = call;
    const count = keys.length;
    try {
      let reply: Promise<unknown>;
      if (!bySha) reply = this.#client.eval(script.source, count, ...keys, ...args);
      else if (count + args.length <= MOST_SPREAD) reply = this.#client.evalsha(script.sha, count, ...keys, ...args);
      // The client flattens a list, which costs less than to spread hundreds of arguments.
      else reply = this.#client.evalsha(script.sha, count, [...keys, ...args] as unknown as string);
      void reply.then(
        (answer) => call.answered(answer),
        (error: unknown) => this.#refused(call, error, bySha),
      );
    } catch (error) {
      // The client threw instead of rejecting: the call needs an answer all the same.
      void Promise.resolve().then(() => this.#refused(call, error, bySha));
    }
  }

  #refused(call: ScriptCall, error: unknown, bySha: boolean): void {
    const isUnknown = bySha && error instanceof Error && error.message.startsWith('NOSCRIPT');
    if (isUnknown && call.isWanted) {
      call.sentAgain();
      this.#run(call, false);
    } else {
      call.failed(faultOf(error, this.#client));
    }
  }

  async call(command: string, ...args: (string | number)[]): Promise<unknown> {
    try {
      return await this.#client.call(command, ...args);
    } catch (error) {
      throw faultOf(error, this.#client);
    }
  }

  async ask(commands: readonly (readonly [command: string, ...args: string[]])[]): Promise<Answer[]> {
    const pipeline = this.#client.pipeline();
    // The key prefix of a Cluster's `redisOptions` is one of each node's client, too, but the keys that it is given have one.
    if (this.cluster) Object.assign(pipeline, { options: { ...this.#single.options, keyPrefix: '' } });
    // ioredis 5.4 puts the key prefix before the keys of commands in lower case only.
    for (const [command, ...args] of commands) pipeline.call(command.toLowerCase(), ...args);
    const results = await pipeline.exec().catch((error: unknown) => {
      throw faultOf(error, this.#client);
    });
    return (results ?? []).map(([error, value]) => {
      if (!error) return { value };
      const fault = faultOf(error, this.#client);
      if (fault.kind !== 'refused') throw fault;
      return { refusal: fault.message };
    });
  }

  get servers(): ReadonlySet<string | undefined> {
    if (!this.isCluster) return new Set([this.name]);
    const { slots } = this.#cluster;
    return new Set(Array.from({ length: SLOTS }, (_, slot) => slots[slot]?.[0]));
  }

  masters(): readonly RedisClient[] {
    if (!this.isCluster) return [this];
    return this.#cluster.nodes('master').map((node) => {
      let master = this.#masters.get(node);
      if (!master) this.#masters.set(node, (master = new IoredisAdapter(node, false, this.#cluster)));
      return master;
    });
  }

  duplicate(connectionName: string): RedisClient {
    const { condition, options } = this.#single;
    const more = this.cluster
      ? { db: 0, keyPrefix: this.cluster.options.keyPrefix, retryStrategy: () => null }
      : { db: condition?.select ?? options.db }; // the application may have selected another database than that of its options
    return new IoredisAdapter(this.#single.duplicate({ ...DUPLICATE, connectionName, ...more }), true);
  }

  subscribe(channel: string, connectionName: string, listener: SubscriptionListener): Subscription {
    return outsideOfCalls(() => new IoredisSubscription(this.#subscriber(connectionName), channel, listener));
  }

  #subscriber(connectionName: string): IoredisClient {
    if (!this.isCluster) return this.#single.duplicate({ ...SUBSCRIBER, connectionName });
    // All of redisOptions: those given here replace the client's in ioredis 5, credentials included.
    const redisOptions = { ...this.#cluster.options.redisOptions, connectionName };
    return this.#cluster.duplicate([], { lazyConnect: true, redisOptions });
  }

  subscribeSharded(
    connectionName: string,
    listener: Parameters<RedisClient['subscribeSharded']>[1],
  ): ShardedSubscription {
    return outsideOfCalls(
      () => new IoredisShardedSubscription(this.#single.duplicate({ ...SHARD_SUBSCRIBER, connectionName }), listener),
    );
  }

  async publishSharded(channel: string, text: string): Promise<number> {
    const node = this.#single;
    // The channel counts as a key, and `call` puts the prefix of `this` before it.
    const unprefixed = {
      options: { ...node.options, keyPrefix: '', enableAutoPipelining: false },
      sendCommand: (command: Parameters<Redis['sendCommand']>[0]) => node.sendCommand(command),
    };
    try {
      return Number(await node.call.call(unprefixed as unknown as Redis, 'spublish', channel, text));
    } catch (error) {
      throw faultOf(error, this.#client);
    }
  }

  // On a connection of its own: under RESP2 one that has subscribed takes no other commands.
  async trySubscribing(channel: string, connectionName: string, timeoutMs: number, how?: 'sharded'): Promise<Answer> {
    let own: Redis | undefined;
    const timer = setTimeout(() => own?.disconnect(), timeoutMs);
    try {
      const once = { keyPrefix: '', enableReadyCheck: false, retryStrategy: () => null };
      own = this.#single.duplicate({ ...SUBSCRIBER, connectionName, ...once });
      own.on('error', () => {}); // the promise rejects with it
      await own.connect();
      const value = await (how === 'sharded' ? own.ssubscribe(channel) : own.subscribe(channel));
      await own.quit().catch(() => {}); // so that the server has closed it when this returns
      return { value };
    } catch (error) {
      return { refusal: problemOfIoredis(error, this.#client) };
    } finally {
      clearTimeout(timer);
      own?.disconnect();
    }
  }

  /** The client as one for a single server; properties of these names are undefined where it is a Cluster. */
  get #single(): Redis {
    return this.#client as Redis;
  }

  get #cluster(): Cluster {
    return this.#client as Cluster;
  }

  get #isGivenUp(): boolean {
    return this.#givenUp !== undefined && this.#givenUp === this.#single.stream;
  }
}

class IoredisSubscription implements Subscription {
  #isClosed = false;
  /** Runs while SUBSCRIBE is not answered. */
  #limit?: NodeJS.Timeout;

  constructor(
    private readonly client: IoredisClient,
    channel: string,
    private readonly listener: SubscriptionListener,
  ) {
    const unlessClosed = (report: () => void) => {
      if (!this.#isClosed) report();
    };
    client
      .on('error', () => {}) // the connection for commands has the same troubles, and reports them
      .on('message', (_channel: string, text: string) => unlessClosed(() => listener.message(text, channel)))
      .on('ready', () => {
        clearTimeout(this.#limit);
        if (!this.#isClosed) this.#limit = setTimeout(() => this.#end(), SUBSCRIBE_LIMIT_MS).unref();
        client.subscribe(channel).then(
          () => {
            clearTimeout(this.#limit);
            unlessClosed(() => listener.opened());
          },
          (error: unknown) => {
            const { kind, message } = faultOf(error, client);
            if (kind !== 'refused') return; // the connection has broken, which is reported
            clearTimeout(this.#limit);
            unlessClosed(() => listener.refused(message));
          },
        );
      })
      .on('close', () => {
        clearTimeout(this.#limit);
        unlessClosed(() => listener.closed());
      })
      .on('end', () => unlessClosed(() => listener.ended()));
    client.connect().catch(() => {}); // reported by the events
  }

  /** The client may not notice that its connection is dead: that of a Cluster sets no time limit for its subscriber. */
  #end(): void {
    this.close();
    this.listener.closed();
    this.listener.ended();
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#limit);
    (this.client as Redis).stream?.destroy(); // a half-open connection would wait for an answer to its end
    this.client.disconnect();
  }
}

class IoredisShardedSubscription implements ShardedSubscription {
  #isClosed = false;

  constructor(
    private readonly client: Redis,
    listener: Parameters<RedisClient['subscribeSharded']>[1],
  ) {
    const unlessClosed = (report: () => void) => {
      if (!this.#isClosed) report();
    };
    client
      .on('error', () => {}) // as above; and of an unsubscription that the server has sent, for which ioredis 5 finds no command
      .on('smessage', (channel: string, text: string) => unlessClosed(() => listener.message(text, channel)))
      .on('ready', () => unlessClosed(() => listener.opened()))
      .on('end', () => unlessClosed(() => listener.closed()));
    client.connect().catch(() => {}); // reported by the events
  }

  async subscribe(channel: string): Promise<void> {
    try {
      await this.client.ssubscribe(channel);
    } catch (error) {
      throw faultOf(error, this.client);
    }
  }

  unsubscribe(channel: string): void {
    this.client.sunsubscribe(channel).catch(() => {}); // without its connection it is gone anyway
  }

  close(): void {
    this.#isClosed = true;
    this.client.stream?.destroy(); // a half-open connection would wait for an answer to its end
    this.client.disconnect();
  }
}

/** The nodes of Clusters whose `asking` is awaited. */
const askedQuietly = new WeakSet<Redis>();

/**
 * While a slot moves, ioredis sends a node `ASKING` before the command, and awaits only the command: where both fail, as at a node that
 * is loading its data, the first would be an unhandled rejection, and the end of the process.
 */
function askQuietly(node: Redis): void {
  if (askedQuietly.has(node)) return;
  askedQuietly.add(node);
  const asking = node.asking.bind(node);
  node.asking = (...args: Parameters<typeof asking>) => {
    const asked = asking(...args);
    asked.catch(() => {});
    return asked;
  };
}

function nameOf(client: IoredisClient): string {
  if (client.isCluster) return 'cluster';
  const { host, port, path, sentinels, name } = (client as Redis).options;
  return sentinels?.length ? `sentinel master ${name}` : (path ?? `${host}:${port}`);
}

function refusedBy(error: Error, client: IoredisClient): ConnectionFailure['refused'] {
  // After a password that was refused other commands are answered by NOAUTH, too.
  if (needsLogin(error.message) && credentialsOf(client).passwords.length === 0) return 'login';
  if (refusesCredentials(error.message)) return 'credentials';
  return isOfSelect(error) && refusesDatabase(error.message) ? 'database' : undefined;
}

function isOfSelect(error: Error & { command?: { name: string } }): boolean {
  return isReplyError(error) && error.command?.name === 'select';
}
