import { Redis, type RedisOptions } from 'ioredis';
import { launchSentinel, type LaunchedSentinel } from './launch-sentinel.js';
import { RedisServer } from './redis-server.js';
import { TcpProxy } from './tcp-proxy.js';
import { until } from './until.js';

const GROUP = 'locks';
/** No Sentinel considers the primary down before the test says so, however busy the machine is. */
const PATIENCE_MS = 60_000;
/**
 * Then one Sentinel does, after this time, and asks for the votes of the majority: several at once would sometimes
 * split them.
 */
const DOWN_AFTER_MS = 500;
const SENTINELS = 3;
const QUORUM = 1;

/** A replica, and the proxy of its stream of changes. */
export interface Replica {
  readonly server: RedisServer;
  readonly stream: TcpProxy;
}

/** A primary with two replicas and three Sentinels that watch it. */
export class SentinelGroup {
  private constructor(
    readonly primary: RedisServer,
    /** The first is the one that Sentinel promotes. */
    readonly replicas: readonly [Replica, Replica],
    private readonly sentinels: readonly Sentinel[],
  ) {}

  static async start(): Promise<SentinelGroup> {
    const primary = await RedisServer.start();
    // With different priorities, the test knows beforehand which one is promoted.
    const replicas: [Replica, Replica] = [await follow(primary, 10), await follow(primary, 100)];
    await acknowledged(primary, replicas.length);
    const sentinels = await Promise.all(Array.from({ length: SENTINELS }, () => Sentinel.watch(primary)));
    await Promise.all(sentinels.map((sentinel) => sentinel.knows(replicas.length, SENTINELS - 1)));
    return new SentinelGroup(primary, replicas, sentinels);
  }

  /** The options with which an application connects to it. */
  get options(): RedisOptions {
    return { sentinels: this.sentinels.map(({ port }) => ({ host: '127.0.0.1', port })), name: GROUP };
  }

  /**
   * Makes the Sentinels replace the primary, which must be dead or paused.
   * @returns the new one, when all of them name it
   */
  async failedOver(): Promise<RedisServer> {
    await this.sentinels[0]!.beQuick();
    await until(async () => (await this.#primaryPorts()).every((port) => port !== this.primary.port), {
      what: 'all Sentinels name another primary',
      timeoutMs: 60_000,
    });
    const [port] = await this.#primaryPorts();
    const { server } = this.replicas.find((replica) => replica.server.port === port)!;
    await until(async () => ((await server.command('ROLE')) as string[])[0] === 'master', { what: 'it is promoted' });
    return server;
  }

  /** @returns when the other replica follows the promoted one */
  follows(promoted: RedisServer): Promise<void> {
    return acknowledged(promoted, this.replicas.length - 1);
  }

  /** From now on nobody corrects a primary that returns and does not know that it was replaced. */
  async killSentinels(): Promise<void> {
    await Promise.all(this.sentinels.map((sentinel) => sentinel.stop()));
  }

  async stop(): Promise<void> {
    await this.killSentinels();
    await Promise.all(this.replicas.flatMap(({ server, stream }) => [server.stop(), stream.stop()]));
    await this.primary.stop();
  }

  #primaryPorts(): Promise<number[]> {
    return Promise.all(this.sentinels.map((sentinel) => sentinel.primaryPort()));
  }
}

/** Replicas report that they follow a while before they get changes. */
async function acknowledged(primary: RedisServer, replicas: number): Promise<void> {
  const acknowledge = async () => {
    await primary.command('SET', 'follows', 1);
    return (await primary.command('WAIT', replicas, 200)) === replicas;
  };
  await until(acknowledge, { what: 'the replicas acknowledge changes' });
}

async function follow(primary: RedisServer, priority: number): Promise<Replica> {
  const stream = await TcpProxy.start(primary.port);
  const server = await RedisServer.start({
    args: ['--replicaof', `127.0.0.1 ${stream.port}`, '--replica-priority', String(priority)],
  });
  await until(async () => String(await server.command('INFO', 'replication')).includes('master_link_status:up'), {
    what: 'the replica follows',
  });
  return { server, stream };
}

/** One Sentinel. */
class Sentinel {
  readonly #admin: Redis;

  private constructor(private readonly launched: LaunchedSentinel) {
    this.#admin = new Redis(this.port, '127.0.0.1', { protocol: 2, disableClientInfo: true, enableReadyCheck: false });
    this.#admin.on('error', () => {});
  }

  get port(): number {
    return this.launched.port;
  }

  static async watch(primary: RedisServer): Promise<Sentinel> {
    const sentinel = new Sentinel(await launchSentinel(GROUP, primary, { quorum: QUORUM, downAfterMs: PATIENCE_MS }));
    await sentinel.#hurry();
    return sentinel;
  }

  /** @returns when it has found these replicas and Sentinels, without which it could not replace the primary */
  async knows(replicas: number, others: number): Promise<void> {
    await until(
      async () => {
        const found = fieldsOf(await this.#admin.call('SENTINEL', 'MASTER', GROUP));
        return Number(found['num-slaves']) === replicas && Number(found['num-other-sentinels']) === others;
      },
      { what: `the Sentinel on port ${this.port} knows the replicas and the other Sentinels` },
    );
  }

  async primaryPort(): Promise<number> {
    const [, port] = (await this.#admin.call('SENTINEL', 'GET-MASTER-ADDR-BY-NAME', GROUP)) as string[];
    return Number(port);
  }

  /** Replaces a primary that does not answer; a failed attempt is repeated after twice the time limit of a failover. */
  async beQuick(): Promise<void> {
    await this.#admin.call('SENTINEL', 'SET', GROUP, 'failover-timeout', 2_000);
    await this.#admin.call('SENTINEL', 'SET', GROUP, 'down-after-milliseconds', DOWN_AFTER_MS);
  }

  async stop(): Promise<void> {
    this.#admin.disconnect();
    await this.launched.stop();
  }

  /**
   * Sentinels refresh their knowledge every second or every ten; Redis 7 can be set to do so more often. Their
   * knowledge about a replica must not be older than five pings when they promote it, and at that time they ask each
   * second.
   */
  async #hurry(): Promise<void> {
    const periods = {
      'info-period': 200,
      'ping-period': 300,
      'publish-period': 100,
      'ask-period': 100,
      'tilt-period': 1_000,
    };
    await this.#admin.call('SENTINEL', 'DEBUG', ...Object.entries(periods).flat()).catch(() => {});
  }
}

function fieldsOf(reply: unknown): Record<string, string> {
  const words = reply as string[];
  return Object.fromEntries(words.flatMap((name, index) => (index % 2 === 0 ? [[name, words[index + 1]!]] : [])));
}
