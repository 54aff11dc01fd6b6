import type { Network } from '../network.js';
import type { Scheduler } from '../scheduler.js';
import { Fields, OK, ReplyError, type Reply } from './replies.js';
import { SimulatedServer } from './simulated-server.js';

/** How long an action of the Sentinels takes, in microseconds: at least, and less than. */
const [VOTE_US, ORDER_US, HELLO_US, CORRECTION_US] = [
  [1_000, 400_000],
  [1_000, 300_000],
  [1_000, 2_000_000],
  [500_000, 10_000_000],
] as const;
/** How often the Sentinels look for replicas to promote, if there is none. */
const RETRY_US = 1_000_000;

export interface SentinelOptions {
  /** The name by which clients ask for the primary. */
  readonly name: string;
  readonly primary: SimulatedServer;
  /** How long the Sentinels wait for a silent primary, in milliseconds. */
  readonly downAfterMs?: number;
}

/**
 * The Sentinels of one primary and its replicas. They see at once which servers answer, and replace the primary after
 * it has been silent for a while, or on request; each of them learns of that a while later. They make a returning
 * primary, and replicas, follow the new primary, as long as a majority of the Sentinels lives. They do not correct
 * servers that follow another one for other reasons.
 */
export class SimulatedSentinels {
  downAfterMs: number;
  readonly #name: string;
  readonly #random: () => number;
  readonly #sentinels: Sentinel[] = [];
  /** The primary and its replicas, by port. */
  readonly #known = new Map<number, SimulatedServer>();
  /** The replicas that should follow the primary, and do not yet. */
  readonly #astray = new Set<SimulatedServer>();
  #primary: SimulatedServer;
  /** Since when it has been silent, in microseconds. */
  #downSince?: number;
  #isFailingOver = false;

  constructor(
    private readonly scheduler: Scheduler,
    private readonly network: Network,
    { name, primary, downAfterMs = 30_000 }: SentinelOptions,
  ) {
    this.#name = name;
    this.#primary = primary;
    this.downAfterMs = downAfterMs;
    this.#random = scheduler.stream(`sentinels of ${name}`);
    this.#watch(primary);
  }

  /** @returns the port of one more Sentinel, and a function that ends it */
  add(): { port: number; stop: () => void } {
    const sentinel: Sentinel = {
      primary: this.#primary,
      isAlive: true,
      server: new SimulatedServer(this.scheduler, this.network, this.network.freePort(), false, {
        commands: { SENTINEL: (_server, args) => this.#answer(sentinel, args) },
      }),
    };
    this.#sentinels.push(sentinel);
    const stop = () => {
      sentinel.isAlive = false;
      sentinel.server.kill();
    };
    return { port: sentinel.server.port, stop };
  }

  /**
   * Replaces the primary, even if it answers.
   * @param chosen by default, the replica that Sentinel would choose
   */
  failOver(chosen?: SimulatedServer): void {
    if (this.#isFailingOver || !this.#isMajorityAlive) return;
    this.#isFailingOver = true;
    this.#after(VOTE_US, () => {
      this.#lookAround();
      const next = chosen ?? this.#best();
      if (!next) {
        this.#isFailingOver = false;
        this.scheduler.after(RETRY_US, () => this.#judge());
        return;
      }
      this.#after(ORDER_US, () => next.enqueue(() => this.#promote(next)));
    });
  }

  get #isMajorityAlive(): boolean {
    return this.#living.length > this.#sentinels.length / 2;
  }

  get #living(): Sentinel[] {
    return this.#sentinels.filter(({ isAlive }) => isAlive);
  }

  #watch(server: SimulatedServer): void {
    if (this.#known.has(server.port)) return;
    this.#known.set(server.port, server);
    server.watchers.add(() => {
      this.#lookAround();
      this.#judge();
      this.#correct();
    });
  }

  /** Asks the primary for its replicas. */
  #lookAround(): void {
    for (const port of this.#primary.replication.replicaPorts) {
      const server = this.network.listenerOf(port);
      if (server instanceof SimulatedServer) this.#watch(server);
    }
  }

  #judge(): void {
    const { now } = this.scheduler;
    this.#downSince = this.#primary.isAnswering ? undefined : (this.#downSince ?? now);
    if (this.#downSince === undefined || this.#isFailingOver) return;
    const since = this.#downSince;
    if (now >= this.#replaceAt) this.failOver();
    else this.scheduler.at(this.#replaceAt, () => this.#downSince === since && this.#judge());
  }

  /** Until then the Sentinels keep a silent primary, and name it like one that answers. */
  get #replaceAt(): number {
    return (this.#downSince ?? this.scheduler.now) + this.downAfterMs * 1_000;
  }

  /** The replica with the lowest priority, and among those the one that has advanced the most. */
  #best(): SimulatedServer | undefined {
    const eligible = [...this.#known.values()].filter(
      (server) => server !== this.#primary && server.isAnswering && server.priority > 0,
    );
    return eligible.sort((a, b) => a.priority - b.priority || b.replication.offset - a.replication.offset)[0];
  }

  #promote(next: SimulatedServer): void {
    this.#isFailingOver = false;
    if (!this.#isMajorityAlive) return;
    next.promote();
    const former = this.#primary;
    this.#primary = next;
    this.#downSince = undefined;
    for (const server of this.#known.values()) if (server !== next) this.#astray.add(server);
    this.#astray.delete(next);
    const message = [this.#name, ...addressOf(former), ...addressOf(next)].join(' ');
    this.#living.forEach((sentinel, at) =>
      this.#after(at === 0 ? ORDER_US : HELLO_US, () => {
        if (!sentinel.isAlive || this.#primary !== next) return;
        sentinel.primary = next;
        const { data } = sentinel.server;
        data.publish(data.channels, 'message', '+switch-master', message);
      }),
    );
    this.#correct();
    this.#judge();
  }

  /** Makes all others follow the primary. */
  #correct(): void {
    for (const server of this.#astray) {
      if (!server.isAnswering) continue; // it is tried again when it returns
      const wasPrimary = server.replication.primaryPort === undefined;
      this.#after(wasPrimary ? CORRECTION_US : ORDER_US, () => {
        if (!this.#astray.has(server) || !server.isAnswering || !this.#isMajorityAlive) return;
        this.#astray.delete(server);
        server.enqueue(() => server.follow(this.#primary));
      });
    }
  }

  #after([least, below]: readonly [number, number], run: () => void): void {
    this.scheduler.after(least + this.#random() * (below - least), run);
  }

  /** Answers `SENTINEL …`. */
  #answer(sentinel: Sentinel, [kind = '', name, ...rest]: readonly string[]): Reply {
    const command = kind.toUpperCase();
    if (command === 'DEBUG') return OK;
    if (command === 'MASTERS') return [this.#describe(sentinel)];
    if (name !== this.#name)
      return command === 'GET-MASTER-ADDR-BY-NAME' ? null : new ReplyError('ERR No such master with that name');
    this.#lookAround();
    switch (command) {
      case 'GET-MASTER-ADDR-BY-NAME':
        return addressOf(sentinel.primary);
      case 'MASTER':
        return this.#describe(sentinel);
      case 'SENTINELS':
        return this.#sentinels
          .filter((each) => each !== sentinel)
          .map(
            ({ server, isAlive }) =>
              new Fields(fieldsOf(server, isAlive ? 'sentinel' : 's_down,sentinel,disconnected')),
          );
      case 'REPLICAS':
      case 'SLAVES':
        return [...this.#known.values()]
          .filter((server) => server !== sentinel.primary)
          .map((server) => new Fields(fieldsOf(server, server.isAnswering ? 'slave' : 's_down,slave,disconnected')));
      case 'SET':
        for (let at = 0; at < rest.length; at += 2)
          if (rest[at] === 'down-after-milliseconds') this.downAfterMs = Number(rest[at + 1]);
        this.#judge();
        return OK;
      case 'FAILOVER':
        this.failOver();
        return OK;
      default:
        return new ReplyError(`ERR unknown subcommand '${kind}'. Try SENTINEL HELP.`);
    }
  }

  #describe({ primary }: Sentinel): Fields {
    const isLeft = primary === this.#primary && this.scheduler.now < this.#replaceAt;
    return new Fields([
      ...fieldsOf(primary, primary.isAnswering || isLeft ? 'master' : 's_down,o_down,master'),
      ...['num-slaves', String(this.#known.size - 1)],
      ...['num-other-sentinels', String(this.#sentinels.length - 1)],
    ]);
  }
}

/** One of them. */
interface Sentinel {
  /** Its answer to clients. */
  readonly server: SimulatedServer;
  /** The primary that it knows. */
  primary: SimulatedServer;
  isAlive: boolean;
}

function addressOf({ port }: SimulatedServer): [host: string, port: string] {
  return ['127.0.0.1', String(port)];
}

function fieldsOf(server: SimulatedServer, flags: string): string[] {
  const [ip, port] = addressOf(server);
  return ['name', `${ip}:${port}`, 'ip', ip, 'port', port, 'runid', server.runId, 'flags', flags];
}
