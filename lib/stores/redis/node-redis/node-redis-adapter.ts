import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { problemOf, type Credentials } from '../../node/problem-of.js';
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
} from '../client/redis-client.js';
import {
  COMMAND_OPTIONS,
  credentialsOf,
  end,
  ignoreErrors,
  CONNECT_ONCE,
  OWN_OPTIONS,
  type Client,
  type ClientOptions,
} from './node-redis.js';
import { NodeRedisCommands } from './node-redis-commands.js';
import { NodeRedisMessages } from './node-redis-messages.js';

/** The pause after a failure before a Sentinel is asked again for its master, in milliseconds. */
const ASK_AGAIN_MS = 250;

const ONLY_ROUTE: Route = [0];

/** The parts of an adapter for one server. */
export interface OneServer {
  readonly name: string;
  readonly isOwned: boolean;
  /** Undefined if `connect` creates it. */
  readonly client?: Client;
  /** The key prefix of the Sentinel or Cluster client: its clients for single servers have none. */
  readonly keyPrefix?: string | Buffer;
  /** Creates a similar client for the current server. */
  another(options: ClientOptions): Promise<Client>;
  /** Whether to create another client when this one has ended, since a Sentinel may name another master. */
  readonly asksAgain?: boolean;
  /** Whether further connections do not reconnect: the server may have left its Cluster. */
  readonly connectsOnce?: boolean;
  onClose?(): void;
}

/** A client of node-redis for one server, or for the master that a Sentinel names. */
export class NodeRedisAdapter extends NodeRedisCommands implements RedisClient {
  readonly name: string;
  readonly isOwned: boolean;
  readonly topology: RedisTopology;
  readonly messages: RedisMessages;
  readonly forgetsOpenCommands = false;
  readonly sendsLater = true;
  /** node-redis does not report it. */
  readonly received = 0;
  #client?: Client;
  #onChange?: (change: ConnectionChange) => void;
  #failure?: ConnectionFailure;
  #generation: object = {};
  #isEnded = false;
  #isClosed = false;
  #isConnecting = false;
  #wasReady = false;
  /** A client that was open and is closed now was closed by the application, so the adapter does not reopen it. */
  #wasOpen = false;
  #hasSocket = false;
  /** The connection broke, and no attempt has failed since. The first attempt comes at once, too early for a server that restarts. */
  #justBroke = false;

  constructor(private readonly server: OneServer) {
    super();
    this.name = server.name;
    this.isOwned = server.isOwned;
    this.#client = server.client;
    this.#wasReady = this.#hasSocket = server.client?.isReady === true;
    this.#wasOpen = server.client?.isOpen === true;
    this.topology = new NodeRedisServer(this, server, () => this.#options);
    this.messages = new NodeRedisMessages(
      (options) => server.another(options),
      (command, ...args) => this.call(command, ...args),
      () => this.credentials,
    );
  }

  get connectionName(): string | undefined {
    return this.#options.name;
  }

  get isReady(): boolean {
    return this.#client?.isReady === true;
  }

  get isEnded(): boolean {
    return this.#isEnded || (this.#wasOpen && this.#client?.isOpen === false);
  }

  /** node-redis has no such word, so these are the words of ioredis. */
  get status(): string {
    return this.isReady ? 'ready' : this.isEnded ? 'end' : this.#isConnecting ? 'connecting' : 'wait';
  }

  get failure(): ConnectionFailure | undefined {
    return this.#failure;
  }

  get generation(): unknown {
    return this.#generation;
  }

  protected get credentials(): Credentials {
    return credentialsOf(this.#options);
  }

  protected get prefix(): string {
    return this.topology.keyPrefix;
  }

  get #options(): ClientOptions {
    return this.#client?.options ?? {};
  }

  listen(onChange: (change: ConnectionChange) => void): void {
    this.#onChange = onChange;
    if (this.#client) this.#watch(this.#client);
  }

  connect(): void {
    if (this.#isConnecting || this.isEnded) return;
    this.#isConnecting = true;
    outsideOfCalls(() => {
      if (!this.#client) void this.#renew();
      else if (!this.#client.isOpen) this.#client.connect().catch(() => {}); // reported by the events
    });
  }

  drop(reason: string): void {
    if (!this.isOwned || this.#isClosed) return;
    this.#failure = { problem: reason };
    this.#retire();
    this.#justBroke = true;
    this.#onChange?.('closed');
    outsideOfCalls(() => void this.#renew());
  }

  close(): void {
    this.#isClosed = true;
    this.#isEnded = true;
    if (this.isOwned) this.#retire();
    else this.#unwatch();
    this.server.onClose?.();
  }

  protected send(args: readonly string[]): Promise<unknown> {
    if (!this.#client) return Promise.reject(new Error('not connected'));
    return this.#client.sendCommand(args, COMMAND_OPTIONS);
  }

  /** Creates another client, and connects it. Never rejects: it retries until it can create one. */
  async #renew(): Promise<void> {
    if (this.#isClosed) return; // otherwise it would use a closed Sentinel, which then stays connected
    const onChange = this.#onChange;
    try {
      const client = await this.server.another(OWN_OPTIONS);
      if (this.#isClosed) this.server.onClose?.(); // for connections that were opened meanwhile
      if (this.#isClosed || this.#client) return end(client);
      this.#client = client;
      this.#watch(client);
      client.connect().catch(() => {}); // reported by the events
    } catch (error) {
      if (this.#isClosed) return this.server.onClose?.();
      this.#fail(error);
      onChange?.('closed');
      this.#onEnd();
    }
  }

  /** Ends an owned client. */
  #retire(): void {
    const client = this.#client;
    this.#unwatch();
    this.#client = undefined;
    if (!client) return;
    end(client, this.#hasSocket);
    this.#hasSocket = false;
  }

  #watch(client: Client): void {
    makeRoom(client, 1);
    client.on('connect', this.#onConnect).on('ready', this.#onReady).on('error', this.#onError).on('end', this.#onEnd);
  }

  #unwatch(): void {
    if (!this.#client) return;
    makeRoom(this.#client, -1);
    ignoreErrors(this.#client)
      .off('connect', this.#onConnect)
      .off('ready', this.#onReady)
      .off('error', this.#onError)
      .off('end', this.#onEnd);
  }

  readonly #onConnect = (): void => {
    this.#hasSocket = true;
    this.#generation = {};
    this.#wasOpen = true;
    if (this.isOwned) this.#onChange?.('accepted');
  };

  readonly #onReady = (): void => {
    this.#failure = undefined;
    this.#isEnded = false; // the application may have connected its client again
    this.#wasReady = true;
    this.#justBroke = false;
    this.#onChange?.('ready');
  };

  // This listener also prevents unhandled error events of a client that the user passed: each call reports its errors.
  readonly #onError = (error: unknown): void => {
    if (this.isReady) return; // the error is not about a lost connection
    this.#hasSocket = false;
    if (this.#justBroke) {
      this.#justBroke = false;
    } else {
      this.#justBroke = this.#wasReady;
      this.#wasReady = false;
      this.#fail(error);
      this.#onChange?.('closed');
    }
    if (this.#client?.isOpen === false) this.#onEnd();
  };

  readonly #onEnd = (): void => {
    if (this.server.asksAgain && !this.#isClosed) {
      this.#retire();
      setTimeout(() => void this.#renew(), ASK_AGAIN_MS).unref();
    } else {
      this.#isEnded = true;
      this.#onChange?.('ended');
    }
  };

  #fail(error: unknown): void {
    const problem = problemOf(error, this.credentials);
    this.#failure = { problem, refused: refusedBy(problem, this.#options) };
    this.#onChange?.('failed');
  }
}

/** The one server of a client. */
class NodeRedisServer implements RedisTopology {
  readonly isCluster = false;
  readonly servers: ReadonlySet<string>;

  constructor(
    private readonly self: RedisClient,
    private readonly server: OneServer,
    private readonly options: () => ClientOptions,
  ) {
    this.servers = new Set([self.name]);
  }

  get keyPrefix(): string {
    return String(this.server.keyPrefix ?? this.options().keyPrefix ?? '');
  }

  get database(): number {
    return this.options().database ?? 0;
  }

  routeOf(): Route {
    return ONLY_ROUTE;
  }

  masters(): readonly RedisClient[] {
    return [this.self];
  }

  duplicate(connectionName: string): RedisClient {
    const { name, asksAgain, connectsOnce, keyPrefix } = this.server;
    const another = (options: ClientOptions) =>
      this.server.another({ ...options, ...(connectsOnce && CONNECT_ONCE), name: connectionName });
    return new NodeRedisAdapter({ name, asksAgain, keyPrefix, isOwned: true, another });
  }
}

function refusedBy(problem: string, { password, database }: ClientOptions): ConnectionFailure['refused'] {
  if (needsLogin(problem) && !password) return 'login';
  if (refusesCredentials(problem)) return 'credentials';
  return database && /\b(select|DB)\b/i.test(problem) && refusesDatabase(problem) ? 'database' : undefined;
}
