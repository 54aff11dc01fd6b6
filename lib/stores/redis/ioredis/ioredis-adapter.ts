import type { Socket } from 'node:net';
import type { Duplex } from 'node:stream';
import { nextTick } from '../../../core/time/event-loop.js';
import {
  makeRoom,
  needsLogin,
  refusesCredentials,
  refusesDatabase,
  type ConnectionFailure,
  type RedisClient,
  type ConnectionChange,
  type RedisMessages,
  type RedisTopology,
  type Route,
  type ScriptCall,
} from '../client/redis-client.js';
import type { Cluster, IoredisClient, Redis, RedisOptions } from '../client/source.js';
import { credentialsOf, faultOf, isReplyError, problemOfIoredis } from './ioredis.js';
import { IoredisMessages } from './ioredis-messages.js';
import { IoredisCluster } from './ioredis-cluster.js';

/** Options of a duplicate. It must not resend commands: WAIT is only about the writes of its own connection. */
const DUPLICATE_OPTIONS = {
  lazyConnect: true,
  enableOfflineQueue: false,
  enableAutoPipelining: false,
  autoResendUnfulfilledCommands: true, // with 0 retries, open commands then fail at once
  maxRetriesPerRequest: 0,
  reconnectOnError: null,
  commandTimeout: undefined, // WAIT may take longer than other commands; each round has its own limit
  socketTimeout: undefined,
} satisfies RedisOptions;

const ONLY_ROUTE: Route = [0];

/** The maximum number of keys and arguments that are spread into a call: enough for one lock. */
const MAX_SPREAD_ARGUMENTS = 12;

/** A client of ioredis, 5.4 or later: for one server, a master that Sentinel names, or a Cluster. */
export class IoredisAdapter implements RedisClient {
  readonly name: string;
  readonly topology: RedisTopology;
  readonly messages: RedisMessages;
  readonly sendsLater = false;
  readonly #client: IoredisClient;
  #onChange?: (change: ConnectionChange) => void;
  #failure?: ConnectionFailure;
  /** The last connection that was closed because it uses the wrong database. */
  #givenUp?: Duplex;
  /** The streams of a Cluster's masters that are corked until the end of this tick. */
  #corked: readonly Duplex[] = [];

  /** @param cluster the Cluster, if the client belongs to one of its nodes */
  constructor(
    client: IoredisClient,
    readonly isOwned = false,
    cluster?: Cluster,
  ) {
    this.#client = client;
    this.name = nameOf(client);
    this.topology = client.isCluster
      ? new IoredisCluster(this.#cluster, (node) => new IoredisAdapter(node, false, this.#cluster))
      : new IoredisServer(this.#single, this, cluster, (duplicate) => new IoredisAdapter(duplicate, true));
    this.messages = new IoredisMessages(client, (command, ...args) => this.call(command, ...args));
  }

  get connectionName(): string | undefined {
    const options = this.#client.isCluster ? this.#cluster.options.redisOptions : this.#single.options;
    return options?.connectionName ?? undefined;
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
    return this.#single.stream; // undefined for a Cluster
  }

  get received(): number {
    return (this.#single.stream as Partial<Socket> | undefined)?.bytesRead ?? 0;
  }

  listen(onChange: (change: ConnectionChange) => void): void {
    this.#onChange = onChange;
    makeRoom(this.#client, 1);
    this.#client.on('ready', this.#onReady).on('close', this.#onClose).on('end', this.#onEnd);
    if (this.isOwned) this.#client.on('connect', this.#onConnect);
    if (this.#client.isCluster) {
      this.#client.on('node error', this.#onNodeError).on('+node', askQuietly);
      this.#cluster.nodes().forEach(askQuietly);
    }
    // A client of the user gets no handler: it would no longer report unhandled errors.
    if (this.isOwned) this.#client.on('error', this.#onError);
  }

  readonly #onConnect = (): void => this.#onChange!('accepted');

  readonly #onReady = (): void => {
    if (this.#isGivenUp) return; // a client without a ready check becomes ready for a moment
    this.#failure = undefined;
    this.#onChange!('ready');
  };

  readonly #onClose = (): void => {
    const error = this.isOwned ? undefined : this.#single.stream?.errored;
    if (error) this.#failure = { problem: problemOfIoredis(error, this.#client) };
    this.#onChange!('closed');
  };

  readonly #onEnd = (): void => this.#onChange!('ended');

  readonly #onError = (error: Error): void => {
    if (this.#isGivenUp) return; // caused by closing the stream
    const failure = { problem: problemOfIoredis(error, this.#client), refused: refusedBy(error, this.#client) };
    // An error of the Cluster itself only means that all nodes failed.
    if (this.#client.isCluster) this.#failure ??= failure;
    else this.#failure = failure;
    // After an error of SELECT, the client would continue in database 0, where other processes do not look for the lock.
    if (isFromSelect(error)) {
      this.#givenUp = this.#single.stream;
      this.#givenUp?.destroy();
    }
    this.#onChange!('failed');
  };

  readonly #onNodeError = (error: Error, node: string): void => {
    if (!this.isReady) this.#failure = { problem: `${node}: ${problemOfIoredis(error, this.#client)}` };
  };

  connect(): void {
    if (this.#client.status === 'wait') this.#client.connect().catch(() => {}); // reported by the status
  }

  drop(reason: string): void {
    if (this.#client.isCluster) this.#cluster.refreshSlotsCache();
    else this.#single.stream?.destroy(new Error(reason));
  }

  close(): void {
    makeRoom(this.#client, -1);
    this.#client.off('ready', this.#onReady).off('close', this.#onClose).off('end', this.#onEnd);
    this.#client.off('connect', this.#onConnect).off('node error', this.#onNodeError).off('+node', askQuietly);
    if (!this.isOwned) return;
    // ioredis listens for one error of a socket. TLS that ends while it connects can have two, and the second would end the process.
    (this.#single.stream as Socket | undefined)?.on('error', () => {});
    this.#client.disconnect();
  }

  run(call: ScriptCall): void {
    if (this.#client.isCluster) this.#writeTogether();
    this.#run(call, true);
  }

  /** Combines all commands of one tick for a node of a Cluster into one write. Each command is for one slot only, so there are many. */
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
      else if (count + args.length <= MAX_SPREAD_ARGUMENTS)
        reply = this.#client.evalsha(script.sha, count, ...keys, ...args);
      // The client flattens a list, which is cheaper than spreading hundreds of arguments.
      else reply = this.#client.evalsha(script.sha, count, [...keys, ...args] as unknown as string);
      void reply.then(
        (answer) => call.answered(answer),
        (error: unknown) => this.#refused(call, error, bySha),
      );
    } catch (error) {
      // The client threw instead of rejecting. The call still needs an answer.
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
      // ioredis 5.4 finds the keys of a command, and so the node of a Cluster, only if its name is in lower case.
      return await this.#client.call.call(this.#caller, command.toLowerCase(), ...args);
    } catch (error) {
      throw faultOf(error, this.#client);
    }
  }

  /** The client without its key prefix. */
  get #caller(): Redis {
    const node = this.#single;
    const sendCommand = (command: Parameters<Redis['sendCommand']>[0]) => node.sendCommand(command);
    return {
      options: { ...node.options, keyPrefix: '', enableAutoPipelining: false },
      sendCommand,
    } as unknown as Redis;
  }

  /** The client as a client for one server. Its properties are undefined for a Cluster. */
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

/** The one server of a client of ioredis. */
export class IoredisServer implements RedisTopology {
  readonly isCluster = false;
  readonly servers: ReadonlySet<string>;

  /**
   * @param cluster the Cluster, if the server is one of its nodes
   * @param adapter creates the adapter of a duplicate
   */
  constructor(
    private readonly client: Redis,
    private readonly self: RedisClient,
    private readonly cluster: Cluster | undefined,
    private readonly adapter: (client: Redis) => RedisClient,
  ) {
    this.servers = new Set([self.name]);
  }

  get keyPrefix(): string {
    return this.client.options.keyPrefix ?? '';
  }

  get database(): number {
    return this.client.condition?.select ?? 0;
  }

  routeOf(): Route {
    return ONLY_ROUTE;
  }

  masters(): readonly RedisClient[] {
    return [this.self];
  }

  duplicate(connectionName: string): RedisClient {
    const { condition, options } = this.client;
    const more = this.cluster
      ? { db: 0, keyPrefix: this.cluster.options.keyPrefix, retryStrategy: () => null }
      : { db: condition?.select ?? options.db }; // the application may have selected another database
    return this.adapter(this.client.duplicate({ ...DUPLICATE_OPTIONS, connectionName, ...more }));
  }
}

/** The nodes whose `asking` has been wrapped. */
const askedQuietly = new WeakSet<Redis>();

/**
 * Prevents an unhandled rejection. While a slot moves, ioredis sends `ASKING` before the command, but awaits only the command. If both
 * fail, as on a node that is loading its data, the first failure would end the process.
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
  // After a wrong password, Redis also answers other commands with NOAUTH.
  if (needsLogin(error.message) && credentialsOf(client).passwords.length === 0) return 'login';
  if (refusesCredentials(error.message)) return 'credentials';
  return isFromSelect(error) && refusesDatabase(error.message) ? 'database' : undefined;
}

function isFromSelect(error: Error & { command?: { name: string } }): boolean {
  return isReplyError(error) && error.command?.name === 'select';
}
