import { NodeError } from '../../../api/errors.js';
import { nextTick, outsideOfCalls } from '../../../core/time/event-loop.js';
import { inTime } from '../../../core/time/time-limit.js';
import type { ReplicaOptions } from '../options.js';
import { nodeError } from '../client/advice.js';
import { problemOf } from '../../node/problem-of.js';
import type { Bound, ExtendOutcome } from '../../../core/backend/lock-backend.js';
import { RedisConnection } from '../client/redis-connection.js';
import { failed, type Answer, type AwaitedReplicas, type ReplicatedExtension } from '../../node/server.backend.js';
import { LockKeys } from '../node/lock-keys.js';
import { RedisNode, type NodeSettings } from '../node/redis-node.js';

type Extension = Answer<ExtendOutcome>;

/** An extension that waits for replicas. */
interface Entry {
  request: ReplicatedExtension;
  resolve: (extension: Extension) => void;
}

/** Waits until replicas have a lock. It uses separate connections, since WAIT blocks its connection. */
export class ReplicaWait implements AwaitedReplicas {
  /** By server: the only one, or each used master of a Cluster. */
  readonly #rounds = new Map<string, Rounds>();

  constructor(
    private readonly source: RedisConnection,
    private readonly settings: NodeSettings,
    private readonly awaited: ReplicaOptions,
  ) {}

  /** An extension may wait for the end of two rounds, and must end before the lease does. */
  get shortestTtl(): Bound {
    return {
      ms: 3 * this.awaited.timeoutMs,
      because:
        'That is three times waitForReplicas.timeoutMs: an extension may wait that long for the replicas, and must end before the ' +
        'lease does.',
    };
  }

  /** The maximum duration of an extension: the rest of the current round, and its own round. */
  get timeoutMs(): number {
    return 2 * roundMs(this.settings, this.awaited);
  }

  /**
   * Restarts the ttl of a lock, and waits until enough replicas have the new ttl and all earlier writes of the server. The extension also
   * detects a server that did not grant the lock.
   */
  extend(request: ReplicatedExtension): Promise<Extension> {
    const server = this.source.client.topology.isCluster ? this.#masterOf(request.grant.key) : 'only';
    if (server === undefined) return Promise.resolve(faulty('cluster', 'no master is known for the slot of the lock'));
    let rounds = this.#rounds.get(server);
    if (!rounds) {
      rounds = new Rounds(this.settings, this.awaited, () => this.#connect(server));
      this.#rounds.set(server, rounds);
    }
    return rounds.extend(request);
  }

  close(): void {
    for (const rounds of this.#rounds.values()) rounds.close();
  }

  #masterOf(key: string): string | undefined {
    const [, master] = this.source.client.topology.routeOf(new LockKeys(this.settings.keyPrefix).lock(key));
    return master as string | undefined;
  }

  #connect(server: string): RedisConnection {
    const masters = this.source.client.topology.masters();
    const master = this.source.client.topology.isCluster
      ? masters.find(({ name }) => name === server)
      : this.source.client;
    if (!master) throw new Error('it is no longer a master of the Cluster');
    const { clientName } = this.source;
    return new RedisConnection(master.topology.duplicate(clientName), clientName, this.settings.commandTimeoutMs);
  }
}

/**
 * One connection to one server. While WAIT blocks it, extensions gather for the next round and share its WAIT.
 */
class Rounds {
  #node?: RedisNode;
  #gathered: Entry[] = [];
  #isBusy = false;
  #closed = false;

  /** @param connect opens a connection to the server. @throws Error when the server no longer exists */
  constructor(
    private readonly settings: NodeSettings,
    private readonly awaited: ReplicaOptions,
    private readonly connect: () => RedisConnection,
  ) {}

  extend(request: ReplicatedExtension): Promise<Extension> {
    return new Promise((resolve) => {
      this.#gathered.push({ request, resolve });
      if (!this.#isBusy) void outsideOfCalls(() => this.#runRounds());
    });
  }

  close(): void {
    this.#closed = true;
    this.#node?.connection.close();
  }

  async #runRounds(): Promise<void> {
    this.#isBusy = true;
    await new Promise((resolve) => nextTick(resolve)); // so that other locks from the same answer join this round
    while (this.#gathered.length > 0) {
      const entries = this.#gathered;
      this.#gathered = [];
      const round = this.#inTime(this.#replicate(entries.map(({ request }) => request)));
      const extensions = await round.catch(waitFailed); // if it ever rejects, callers still get an answer
      entries.forEach(({ resolve }, index) => resolve(Array.isArray(extensions) ? extensions[index]! : extensions));
    }
    this.#isBusy = false;
  }

  /** Extends locks, and waits for their replicas. Never rejects. @returns an answer for each, or one fault for all */
  async #replicate(requests: readonly ReplicatedExtension[]): Promise<Extension[] | Extension> {
    try {
      const node = this.#connected();
      const problem = await node.connection.ready(this.settings.commandTimeoutMs);
      if (problem) return fault(problem);
      const extensions = await Promise.all(requests.map((request) => extendOnNode(node, request)));
      if (!extensions.some(({ status }) => status === 'extended')) return extensions;
      const missing = await missingReplicas(node, this.awaited);
      return missing ? extensions.map((each) => (each.status === 'extended' ? fault(missing) : each)) : extensions;
    } catch (error) {
      return waitFailed(error);
    }
  }

  #connected(): RedisNode {
    if (!this.#node || this.#node.connection.client.isEnded) {
      this.#node?.connection.close();
      this.#node = new RedisNode(this.connect(), this.settings);
    }
    if (!this.#closed) return this.#node;
    this.#node.connection.close();
    throw new Error('the connection is closed');
  }

  /** Limits the duration of a round, so that a server that hangs does not delay later extensions further. */
  #inTime(round: Promise<Extension[] | Extension>): Promise<Extension[] | Extension> {
    const limitMs = roundMs(this.settings, this.awaited);
    return inTime(round, limitMs, () => {
      const node = this.#node;
      this.#node = undefined; // the next round opens another one
      node?.connection.close(); // this fails its commands in flight
      return faulty(node?.name ?? 'Redis', `no answer within ${limitMs} ms on whether replicas have it`);
    });
  }
}

function extendOnNode(node: RedisNode, request: ReplicatedExtension): Promise<Extension> {
  const { grant, ttlMs, atLeast } = request;
  return new Promise((resolve) => {
    if (!atLeast) return node.extend(request, resolve);
    // A transfer to the same owner keeps a longer ttl, which an extension would shorten.
    const again = { key: grant.key, from: grant.owner, to: grant.owner, ttlMs, atLeast, mints: false };
    node.move(again, (answer) =>
      resolve(answer.status === 'transferred' ? { status: 'extended', sentAt: answer.sentAt } : answer),
    );
  });
}

/** Waits for replicas. @returns undefined when enough of them have all writes of this connection, otherwise the problem */
async function missingReplicas(
  { name, connection }: RedisNode,
  { count, timeoutMs }: ReplicaOptions,
): Promise<NodeError | undefined> {
  try {
    const replicas = Number(await connection.client.call('wait', count, timeoutMs));
    if (replicas >= count) return undefined;
    return new NodeError(
      name,
      `${replicas} of ${count} replicas had it within ${timeoutMs} ms`,
      'Check that its replicas follow it in time, or ask for fewer with waitForReplicas.',
    );
  } catch (error) {
    return nodeError(name, `it is unknown whether replicas have it: ${problemOf(error)}`);
  }
}

/** The time limit of a round: to connect, to extend, and to WAIT. */
function roundMs({ commandTimeoutMs }: NodeSettings, { timeoutMs }: ReplicaOptions): number {
  return commandTimeoutMs + timeoutMs;
}

function waitFailed(error: unknown): Extension {
  return faulty('Redis', `waiting for replicas failed: ${problemOf(error)}`);
}

function faulty(node: string, problem: string): Extension {
  return fault(nodeError(node, problem));
}

function fault(error: NodeError): Extension {
  return failed(error, true);
}
