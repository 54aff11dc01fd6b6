import type { Library } from '../../chaos/mutant.js';
import type { Revived } from '../../chaos/history.js';
import type { RedisLockModuleOptions } from '../../chaos/library.js';
import type { Network } from '../network.js';
import { keySlot, SLOTS } from '../redis/cluster-keys.js';
import { ReplyError } from '../redis/replies.js';
import { SimulatedSentinels } from '../redis/sentinel.js';
import { SimulatedServer } from '../redis/simulated-server.js';
import type { Scheduler } from '../scheduler.js';
import { TOPOLOGIES, type Topology } from './plan.js';
import { revivedOn } from './revived.js';

/** How far wall clocks of servers are ahead, or behind, in microseconds; servers of one group share the value. */
const OFFSET_US = 100_000;
/** The maximum error of a clock's rate: a tenth of what the library allows for. */
export const DRIFT = 0.003;
/** How much the clocks of two servers may differ in the end, in microseconds. */
const DIFFERENCE_US = 500_000;
/** How long changes take to a replica, in microseconds: less than one of these. */
const LAGS_US = [100, 5_000, 150_000];
const GROUP = 'locks';
const SENTINELS = 3;
/** After this time, a primary that does not answer is replaced, in milliseconds. */
const DOWN_AFTER_MS = 200;
/** How often slow processes are checked, in microseconds. */
const LOOK_US = 20_000;

/** As in docs/connections.md; otherwise a connection to a half-open node would stay so. */
const SOCKET_TIMEOUT_MS = 4_000;

type Source = Pick<RedisLockModuleOptions, 'redis' | 'redlock'>;

/** A server has replaced another one. */
export interface Failover {
  readonly at: number;
  readonly servers: readonly SimulatedServer[];
  /** The data of the new primary, which may lag. */
  readonly revived: Revived;
  /** Until then both may grant a lock. */
  until: number;
}

/** The servers of a topology: how they are set up, how the library finds them, and what replaces what. */
export class Stage {
  readonly servers: readonly SimulatedServer[];
  /** How many of them must have a lock. */
  readonly quorum: number;
  readonly #kind: (typeof TOPOLOGIES)[Topology]['kind'];
  readonly #sentinels: { readonly port: number; readonly stop: () => void }[] = [];
  #group?: SimulatedSentinels;
  #moves = 0;
  /** The last one. */
  #failover?: Failover;
  /** The last time when a server became a primary. */
  readonly #promotedAt = new Map<SimulatedServer, number>();

  constructor(
    private readonly scheduler: Scheduler,
    network: Network,
    topology: Topology,
    firstPort: number,
    /** Called when one begins, and when it is over. */
    private readonly onFailover: (failover: Failover) => void,
  ) {
    const { kind, servers: count } = TOPOLOGIES[topology];
    this.#kind = kind;
    this.quorum = kind === 'redlock' ? Math.floor(count / 2) + 1 : 1;
    const ofAll = scheduler.stream('servers');
    const offset = ofAll();
    const lag = [0, LAGS_US[Math.floor(ofAll() * LAGS_US.length)]!] as const;
    this.servers = Array.from({ length: count }, (_, number) => {
      const draw = scheduler.stream(`clock of server ${number}`);
      const server = new SimulatedServer(scheduler, network, firstPort + number, false, {
        isInCluster: kind === 'cluster',
      });
      server.clock.rate = 1 + (2 * draw() - 1) * DRIFT;
      server.clock.offsetUs = Math.round((2 * (this.#isReplicated ? offset : draw()) - 1) * OFFSET_US);
      server.lag = lag;
      server.onPromoted = (former) => this.#failedOver(former, server);
      return server;
    });
    if (kind === 'redlock') for (const server of this.servers) votesAtOnce(server);
    if (kind === 'sentinel') this.#replicate(network);
    if (kind === 'cluster') this.#formCluster();
  }

  /** Whether every server is available. */
  get isSettled(): boolean {
    if (!this.#isReplicated) return true;
    const isWell = ({ isAnswering, isPrimary, replication, cluster }: SimulatedServer) =>
      isAnswering && (isPrimary || replication.isLinked) && (cluster?.isServing ?? true);
    const primaries = this.servers.filter(({ isPrimary }) => isPrimary).length;
    return this.#moves === 0 && this.servers.every(isWell) && primaries === this.servers.length / 2;
  }

  /** How a process finds them. */
  source({ Cluster }: Library): Source {
    const urls = this.servers.map(({ port }) => `redis://127.0.0.1:${port}`);
    if (process.env.REDIS_CLIENT === 'node-redis') return this.#sourceOfNodeRedis(urls);
    if (this.#kind === 'redlock') return { redlock: urls };
    if (this.#kind === 'one') return { redis: urls[0]! };
    const addresses = (list: readonly { port: number }[]) => list.map(({ port }) => ({ host: '127.0.0.1', port }));
    if (this.#kind === 'sentinel') return { redis: { sentinels: addresses(this.#sentinels), name: GROUP } };
    const nodes = addresses(this.servers);
    const redisOptions = { socketTimeout: SOCKET_TIMEOUT_MS };
    return { redis: () => new Cluster(nodes, { lazyConnect: true, redisOptions }) };
  }

  #sourceOfNodeRedis(urls: string[]): Source {
    if (this.#kind === 'redlock') return { redlock: urls.map((url) => ({ url })) };
    if (this.#kind === 'one') return { redis: { url: urls[0]! } };
    const defaults = { pingInterval: SOCKET_TIMEOUT_MS / 2, socket: { socketTimeout: SOCKET_TIMEOUT_MS } };
    if (this.#kind === 'cluster') return { redis: { rootNodes: urls.map((url) => ({ url })), defaults } };
    const sentinelRootNodes = this.#sentinels.map(({ port }) => ({ host: '127.0.0.1', port }));
    return { redis: { sentinelRootNodes, name: GROUP } };
  }

  /** A replica replaces this server, or its primary, while both run. */
  failOver(server: SimulatedServer): void {
    if (this.#group) return this.#group.failOver();
    const primary = server.isPrimary ? server : this.#primaryOf(server);
    const replica = this.servers.find((each) => each.isAnswering && this.#primaryOf(each) === primary);
    replica?.enqueue(() => replica.cluster!.takeOver());
  }

  /** The slot of a key moves from its node to the next one, which takes a while. */
  moveSlot(key: string, forUs: number): void {
    const slot = keySlot(key);
    const masters = this.servers.filter((each) => each.isPrimary);
    const from = masters.findIndex(({ cluster }) => cluster!.owns(slot));
    const [source, target] = [masters[from], masters[(from + 1) % masters.length]];
    if (!source || !target || this.#moves > 0) return;
    this.#moves++;
    const [here, there] = [source.cluster!, target.cluster!];
    there.execute(['SETSLOT', `${slot}`, 'IMPORTING', here.id]);
    here.execute(['SETSLOT', `${slot}`, 'MIGRATING', there.id]);
    const migrate = (most: number) => {
      const keys = here.execute(['GETKEYSINSLOT', `${slot}`, `${most}`]) as string[];
      here.migrate(['127.0.0.1', `${target.port}`, '', '0', '5000', 'KEYS', ...keys]);
    };
    this.scheduler.after(forUs / 2, () => migrate(1));
    this.scheduler.after(forUs, () => {
      migrate(Infinity);
      for (const node of [there, here]) node.execute(['SETSLOT', `${slot}`, 'NODE', there.id]);
      this.#moves--;
    });
  }

  /** The primary of a server when it starts again; a node of a Cluster knows that itself. */
  followAgain(server: SimulatedServer, primaryPort: number | undefined): void {
    if (this.#kind === 'sentinel' && primaryPort !== undefined)
      server.replication.follow(primaryPort, server.lag, 'new');
  }

  stop(): void {
    for (const sentinel of this.#sentinels) sentinel.stop();
    for (const server of this.servers) server.kill();
  }

  get #isReplicated(): boolean {
    return this.#kind === 'sentinel' || this.#kind === 'cluster';
  }

  #replicate(network: Network): void {
    const [primary, ...replicas] = this.servers;
    for (const replica of replicas) replica.replication.follow(primary!.port, replica.lag, 'new');
    this.#group = new SimulatedSentinels(this.scheduler, network, {
      name: GROUP,
      primary: primary!,
      downAfterMs: DOWN_AFTER_MS,
    });
    for (let each = 0; each < SENTINELS; each++) this.#sentinels.push(this.#group.add());
  }

  /** The first half of them have the slots, and the others replicate them. */
  #formCluster(): void {
    const { servers } = this;
    const masters = servers.slice(0, servers.length / 2);
    servers.forEach((server, number) => {
      server.configure([['cluster-node-timeout', `${DOWN_AFTER_MS}`]]);
      server.cluster!.execute(['SET-CONFIG-EPOCH', `${number + 1}`]);
      for (const other of servers) if (other !== server) server.cluster!.execute(['MEET', '', `${other.port}`]);
    });
    masters.forEach((server, number) => {
      const first = Math.floor((number * SLOTS) / masters.length);
      const end = Math.floor(((number + 1) * SLOTS) / masters.length);
      const slots = Array.from({ length: end - first }, (_, at) => `${first + at}`);
      server.cluster!.execute(['ADDSLOTS', ...slots]);
      const replica = servers[masters.length + number]!.cluster!;
      const replicate = () => {
        const reply = replica.execute(['REPLICATE', server.cluster!.id]);
        if (reply instanceof ReplyError) this.scheduler.after(LOOK_US, replicate);
      };
      replicate();
    });
  }

  #primaryOf({ replication }: SimulatedServer): SimulatedServer | undefined {
    return this.#serverOn(replication.primaryPort);
  }

  #serverOn(port: number | undefined): SimulatedServer | undefined {
    return this.servers.find((server) => server.port === port);
  }

  /** It is over when the former primary has become a replica, and different clocks make no difference any more. */
  #failedOver(formerPort: number | undefined, next: SimulatedServer): void {
    const former = this.#serverOn(formerPort) ?? this.servers.find((server) => server !== next && server.isPrimary)!;
    const { now } = this.scheduler;
    this.#promotedAt.set(next, now);
    // A failover that begins before the last is over prolongs it: all that time, two may grant.
    const at = this.#failover && this.#failover.until > now ? this.#failover.at : now;
    const failover: Failover = (this.#failover = {
      at,
      servers: [former, next],
      revived: revivedOn(next),
      until: Infinity,
    });
    this.onFailover(failover);
    const look = () => {
      const isReplaced = former.isPrimary && !(this.#promotedAt.get(former)! >= now);
      if (isReplaced) return this.scheduler.after(LOOK_US, look);
      failover.until = this.scheduler.now + DIFFERENCE_US;
      this.onFailover(failover);
    };
    look();
  }
}

/** A node of the Redlock that has been up for long. */
function votesAtOnce({ data, runId }: SimulatedServer): void {
  data.change('lock:admission', { value: `1 20 ${runId}` });
}
