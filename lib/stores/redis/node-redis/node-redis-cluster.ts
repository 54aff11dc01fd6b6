import { outsideOfCalls } from '../../../core/time/event-loop.js';
import { clusterSlot, SLOTS } from '../client/cluster-slot.js';
import { problemOf, type Credentials } from '../../node/problem-of.js';
import {
  makeRoom,
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
  duplicateClient,
  type Client,
  type ClientOptions,
  type ClusterClient,
  type ClusterNode,
} from './node-redis.js';
import { NodeRedisAdapter } from './node-redis-adapter.js';
import { NodeRedisCommands } from './node-redis-commands.js';
import { NodeRedisMessages } from './node-redis-messages.js';

/** The pause after a failure before the next attempt to connect to a Cluster, in milliseconds. */
const CONNECT_AGAIN_MS = 250;

/** How long to wait, after a node was unreachable, before refreshing the slot map, in milliseconds. */
const LOOK_AGAIN_MS = 2_000;

/** The time limit of a node for sending the slot map, in milliseconds. node-redis itself would wait forever for a node that hangs. */
export const SLOTS_LIMIT_MS = 3_000;

/** How long a closed Cluster may continue to connect, in milliseconds. */
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
  /** By node: the client creates another node object for another address. */
  readonly #masters = new WeakMap<ClusterNode, RedisClient>();
  #onChange?: (change: ConnectionChange) => void;
  #failure?: ConnectionFailure;
  #isConnected = false;
  #isConnecting = false;
  #isClosed = false;
  #turns = 0;
  #lookingAgain?: NodeJS.Timeout;

  constructor(
    private readonly client: ClusterClient,
    readonly isOwned: boolean,
  ) {
    super();
    this.#isConnected = this.#knowsSlots;
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

  /** A client that the application is connecting is open, too, but knows no slots yet. */
  get #knowsSlots(): boolean {
    const { isOpen, isReady = true, masters } = this.client;
    return isOpen && isReady && masters.length > 0;
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

  listen(onChange: (change: ConnectionChange) => void): void {
    this.#onChange = onChange;
    makeRoom(this.client, 1);
    this.client.on('error', this.#onError).on('node-error', this.#onNodeError);
  }

  /** Retries here, because the client gives up when no node answers. */
  connect(): void {
    if (this.#isConnecting || this.#isConnected) return;
    this.#isConnecting = true;
    void outsideOfCalls(() => this.#connect());
  }

  async #connect(): Promise<void> {
    try {
      if (!this.client.isOpen) await this.client.connect();
      if (this.#isClosed) return this.#end();
      if (!this.#knowsSlots) throw new Error('the application is still connecting it');
      this.#isConnected = true;
      this.#failure = undefined;
      this.#onChange?.('ready');
    } catch (error) {
      if (this.#isClosed) return this.#end();
      this.#onError(error);
      this.#onChange?.('closed');
      setTimeout(() => void (this.#isClosed || this.#connect()), CONNECT_AGAIN_MS).unref();
    }
  }

  readonly #onError = (error: unknown): void => {
    if (this.isReady) return;
    this.#failure ??= { problem: problemOf(error, this.credentials) };
    this.#onChange?.('failed');
  };

  /** Refreshes the slot map: another node may have the slots of a failed one, and node-redis asks at most the nodes it was connected to. */
  readonly #onNodeError = (): void => {
    if (this.#isClosed) return;
    this.#lookingAgain ??= outsideOfCalls(() => setTimeout(() => void this.#lookAgain(), LOOK_AGAIN_MS)).unref();
  };

  async #lookAgain(): Promise<void> {
    const { masters, _options, _slots } = this.client;
    const { options = _options?.rootNodes?.[0] } = masters.find(isReady)?.client ?? {};
    const limited = { ...options, socket: { ...options?.socket, socketTimeout: SLOTS_LIMIT_MS } };
    // Its errors are also events of the Cluster.
    if (this.#knowsSlots && options) await _slots.rediscover({ options: limited }).catch(() => {});
    this.#lookingAgain = undefined;
  }

  /** Nothing to do: a redirection or a failed node makes the client refresh its slot map. */
  drop(): void {}

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#lookingAgain);
    // A connection that is just opening would stay open if the client were destroyed now, so wait for it.
    const { masters } = this.client;
    const isConnecting = !this.#isConnected || masters.some(({ client }) => client?.isOpen && !client.isReady);
    if (isConnecting) setTimeout(() => this.#end(), CONNECT_LIMIT_MS).unref();
    else this.#end();
  }

  #end(): void {
    makeRoom(this.client, -1);
    ignoreErrors(this.client).off('error', this.#onError).off('node-error', this.#onNodeError);
    if (this.isOwned) end(this.client);
  }

  protected async send(args: readonly string[], key?: string): Promise<unknown> {
    const node = key === undefined ? this.#anyMaster() : this.client.slots[clusterSlot(key)]?.master;
    const client = await connectedClient(this.client, node);
    return key === undefined
      ? client.sendCommand(args, COMMAND_OPTIONS)
      : this.client.sendCommand(key, false, args, COMMAND_OPTIONS);
  }

  routeOf(key: string): Route {
    const slot = clusterSlot(this.keyPrefix + key);
    // Overdue commands block both: a node that hangs serves none of its slots, and the next node of the slot may still run them.
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
    throw new Error('A Cluster cannot be duplicated: duplicate its masters.');
  }

  async #anyOf(options: ClientOptions): Promise<Client> {
    return duplicateClient(await connectedClient(this.client, this.#anyMaster()), options);
  }

  /** Returns another master for each attempt, since one may hang. Prefers masters that are connected. */
  #anyMaster(): ClusterNode | undefined {
    const { masters } = this.client;
    const ready = masters.filter(isReady);
    const among = ready.length > 0 ? ready : masters;
    return among[this.#turns++ % among.length];
  }
}

/** A master of a Cluster, with the Cluster's client for it. */
class Master extends NodeRedisAdapter {
  constructor(
    private readonly cluster: ClusterClient,
    private readonly node: ClusterNode,
  ) {
    const another = async (options: ClientOptions) => duplicateClient(await connectedClient(cluster, node), options);
    const keyPrefix = cluster._options?.keyPrefix;
    super({ name: node.address, isOwned: false, keyPrefix, another, connectsOnce: true });
  }

  override get isReady(): boolean {
    return isReady(this.node);
  }

  override get generation(): unknown {
    return this.node.client;
  }

  protected override get credentials(): Credentials {
    return credentialsOf(this.cluster._options?.defaults);
  }

  protected override async send(args: readonly string[]): Promise<unknown> {
    return (await connectedClient(this.cluster, this.node)).sendCommand(args, COMMAND_OPTIONS);
  }
}

/** The end of each client's first attempt to connect. */
const FIRST_ATTEMPTS = new WeakMap<Client, Promise<unknown>>();

/**
 * Returns the client of a node after its first attempt to connect. node-redis itself would queue commands until it succeeds.
 * @throws Error when it is not connected
 */
async function connectedClient(cluster: ClusterClient, node?: ClusterNode): Promise<Client> {
  if (node && !isReady(node) && cluster.masters.includes(node)) {
    const connecting = cluster.nodeClient(node);
    const client = node.client!;
    if (!FIRST_ATTEMPTS.has(client)) {
      const failing = new Promise((resolve) => client.once('error', resolve));
      FIRST_ATTEMPTS.set(
        client,
        Promise.race([connecting, failing]).catch(() => {}),
      );
    }
    await FIRST_ATTEMPTS.get(client);
  }
  if (!node || !isReady(node)) throw new Error('The client is offline');
  return node.client!;
}

function isReady({ client }: ClusterNode): boolean {
  return client?.isReady === true;
}
