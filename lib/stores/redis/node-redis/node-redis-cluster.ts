import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { clusterSlot, SLOTS } from '../client/cluster-slot.js';
import { withoutCredentials, type Credentials } from '../client/credentials.js';
import { problemOf } from '../client/problem-of.js';
import type {
  ConnectionFailure,
  RedisClient,
  RedisClientListener,
  RedisMessages,
  RedisTopology,
  Route,
} from '../client/redis-client.js';
import {
  COMMAND,
  credentialsOf,
  end,
  ignoreErrors,
  likeness,
  type Client,
  type ClientOptions,
  type ClusterClient,
  type ClusterNode,
} from './node-redis.js';
import { NodeRedisAdapter } from './node-redis-adapter.js';
import { NodeRedisCommands } from './node-redis-commands.js';
import { NodeRedisMessages } from './node-redis-messages.js';

/** How long after a failure a Cluster is looked for again, in milliseconds. */
const CONNECT_AGAIN_MS = 250;

/** How long a Cluster that is closed meanwhile may go on connecting, in milliseconds. */
const CONNECT_LIMIT_MS = 2_000;

/** A client of node-redis for a Cluster. */
export class NodeRedisCluster extends NodeRedisCommands implements RedisClient, RedisTopology {
  readonly name = 'cluster';
  readonly isCluster = true;
  readonly database = 0;
  readonly forgetsOpenCommands = false;
  readonly sendsLater = true;
  readonly received = 0;
  readonly generation = undefined;
  readonly topology: RedisTopology = this;
  readonly messages: RedisMessages;
  /** By its node, which the client makes anew where it has another address. */
  readonly #masters = new WeakMap<ClusterNode, RedisClient>();
  #listener?: RedisClientListener;
  #failure?: ConnectionFailure;
  #isConnected = false;
  #isConnecting = false;
  #isClosed = false;
  #subscribers = 0;

  constructor(
    private readonly client: ClusterClient,
    readonly isOwned: boolean,
  ) {
    super();
    this.#isConnected = client.isOpen && client.masters.length > 0;
    this.messages = new NodeRedisMessages(
      (options) => this.#anyOf(options),
      (command, ...args) => this.call(command, ...args),
      () => this.credentials,
    );
  }

  get connectionName(): string | undefined {
    return this.client._options?.defaults?.name;
  }

  get isReady(): boolean {
    return this.#isConnected && this.client.isOpen;
  }

  get isEnded(): boolean {
    return this.#isClosed || (this.#isConnected && !this.client.isOpen);
  }

  get status(): string {
    return this.isReady ? 'ready' : this.isEnded ? 'end' : this.#isConnecting ? 'connecting' : 'wait';
  }

  get failure(): ConnectionFailure | undefined {
    return this.#failure;
  }

  get keyPrefix(): string {
    return String(this.client._options?.keyPrefix ?? '');
  }

  protected get prefix(): string {
    return this.keyPrefix;
  }

  protected get credentials(): Credentials {
    return credentialsOf(this.client._options?.defaults);
  }

  listen(listener: RedisClientListener): void {
    this.#listener = listener;
    this.client.on('error', this.#onError);
  }

  /** The client gives up when no node answers. */
  connect(): void {
    if (this.#isConnecting || this.#isConnected) return;
    this.#isConnecting = true;
    void outsideOfCalls(() => this.#connect());
  }

  async #connect(): Promise<void> {
    try {
      if (!this.client.isOpen) await this.client.connect();
      if (this.#isClosed) return this.#end();
      this.#isConnected = true;
      this.#failure = undefined;
      this.#listener?.ready();
    } catch (error) {
      if (this.#isClosed) return this.#end();
      this.#onError(error);
      this.#listener?.closed();
      setTimeout(() => void (this.#isClosed || this.#connect()), CONNECT_AGAIN_MS).unref();
    }
  }

  readonly #onError = (error: unknown): void => {
    if (this.isReady) return;
    this.#failure ??= { problem: withoutCredentials(problemOf(error), this.credentials) };
    this.#listener?.failed();
  };

  /** Nothing to do: a node that has lost a slot says so in its next answer, and the client then asks where all slots are. */
  drop(): void {}

  close(): void {
    this.#isClosed = true;
    // Connections that are being made when a client is destroyed stay open: it is left the time to make them.
    if (this.#isConnecting && !this.#isConnected) setTimeout(() => this.#end(), CONNECT_LIMIT_MS).unref();
    else this.#end();
  }

  #end(): void {
    ignoreErrors(this.client).off('error', this.#onError);
    if (this.isOwned) end(this.client);
  }

  protected send(args: readonly string[], key = ''): Promise<unknown> {
    return this.client.sendCommand(key, false, args, COMMAND);
  }

  routeOf(key: string): Route {
    const slot = clusterSlot(this.keyPrefix + key);
    // Both block: a node that hangs answers for no slot, and open commands may yet run on the slot's next node.
    const node = this.client.slots[slot]?.master.address;
    return node === undefined ? [slot] : [slot, node];
  }

  get servers(): ReadonlySet<string | undefined> {
    const { slots } = this.client;
    return new Set(Array.from({ length: SLOTS }, (_, slot) => slots[slot]?.master.address));
  }

  masters(): readonly RedisClient[] {
    return this.client.masters.map((node) => {
      let master = this.#masters.get(node);
      if (!master) this.#masters.set(node, (master = new Master(this.client, node)));
      return master;
    });
  }

  duplicate(): RedisClient {
    throw new Error('A Cluster is not duplicated: each of its masters is.');
  }

  /** A client for any master: another one with each attempt, as one may be down. */
  async #anyOf(options: ClientOptions): Promise<Client> {
    const { masters } = this.client;
    const node = masters[this.#subscribers++ % masters.length];
    if (!node) throw new Error('the Cluster has no master');
    return likeness(await this.client.nodeClient(node), options);
  }
}

/** A master of a Cluster, with the client that the Cluster has for it. */
class Master extends NodeRedisAdapter {
  constructor(
    private readonly cluster: ClusterClient,
    private readonly node: ClusterNode,
  ) {
    const another = async (options: ClientOptions) => likeness(await cluster.nodeClient(node), options);
    super({ name: node.address, isOwned: false, another });
  }

  override get isReady(): boolean {
    return this.node.client?.isReady === true;
  }

  override get generation(): unknown {
    return this.node.client;
  }

  protected override get credentials(): Credentials {
    return credentialsOf(this.cluster._options?.defaults);
  }

  protected override async send(args: readonly string[]): Promise<unknown> {
    return (await this.cluster.nodeClient(this.node)).sendCommand(args, COMMAND);
  }
}
