import { NodeError } from '../../../api/errors.js';
import { driftMs } from '../../../core/time/clock.js';
import { inTime } from '../../../core/time/time-limit.js';
import { nodeError } from '../client/advice.js';
import { problemOf } from '../../node/problem-of.js';
import { MAX_PROPOSAL_DISTANCE_US, WAIT_FOR_VOTES, type Admission } from '../node/lock-scripts.js';
import type { RedisNode } from '../node/redis-node.js';
import type { Proposals } from './proposals.js';
import { identify, type ServerIdentity } from '../client/server-identity.js';

/** The longest ttl in use, as far as this service knows: shared by the checks of all nodes. */
export interface LongestTtl {
  /** In milliseconds. */
  ms: number;
}

export interface AdmissionSettings {
  node: RedisNode;
  /** The index of the node. */
  at: number;
  /** Shared by the checks of all nodes. */
  longest: LongestTtl;
  /** The time limit of each command, in milliseconds. */
  timeoutMs: number;
  /** The clock of the service, in milliseconds. */
  now: () => number;
  /** Receives the time of the node. */
  proposals: Proposals;
}

/** A server behind a connection, with its answers. */
interface KnownServer extends ServerIdentity {
  /** Identifies the connection of the check. A restart breaks it. */
  generation: unknown;
  /** Changes when the server loses data. */
  epoch: string;
  /** The time since which it knows all locks that it granted, by the clock of this process. */
  since: number;
  /** Set once all locks that it may have forgotten have expired. */
  admission?: Admission;
}

/**
 * Prevents a node of a Redlock from voting until every lock that it may have forgotten has expired. The clients implement the delayed
 * restart of the Redlock description this way. See docs/adr/0014-restart-guard.md.
 */
export class AdmissionCheck {
  #others: readonly AdmissionCheck[] = [];
  #server?: KnownServer;
  /** The reason why the last check failed. */
  #problem?: NodeError;
  #checking?: Promise<void>;
  #asking?: Promise<unknown>;
  /** The request in flight for the identity of a server. */
  #identifying?: { generation: unknown; identity: Promise<ServerIdentity> };

  constructor(private readonly settings: AdmissionSettings) {}

  /** Connects this check with the checks of the other nodes. @param checks the checks of all nodes */
  join(checks: readonly AdmissionCheck[]): void {
    this.#others = checks.filter((check) => check !== this);
  }

  /** Whether this process knows if the node votes. */
  get isSettled(): boolean {
    return this.#current !== undefined || (this.#problem !== undefined && !this.#checking);
  }

  /** Returns the admission of the node, or the reason why it does not vote. */
  vote(): Admission | NodeError {
    const server = this.#current;
    if (!server) {
      const { connection } = this.settings.node;
      if (!connection.isReady) return connection.problem;
      void this.checked();
      return (
        this.#problem ??
        new NodeError(this.settings.node.name, 'it has not been checked for a restart yet', 'Try again in a moment.')
      );
    }
    if (server.admission) return server.admission;
    const waitMs = this.#waitMs(server);
    if (waitMs > 0) return this.#mustWait(waitMs);
    const { epoch } = server;
    return (server.admission = { epoch });
  }

  /** Called when the node has lost its data since its admission in this epoch. */
  revoke(epoch: string): void {
    if (this.#server?.epoch === epoch) this.#server = undefined;
    void this.checked();
  }

  /** Checks the node for a restart, once for each connection. Never rejects. */
  checked(): Promise<void> {
    if (this.#current || !this.settings.node.isReady) return Promise.resolve();
    return (this.#checking ??= this.#ask().finally(() => {
      this.#checking = undefined;
    }));
  }

  async #ask(): Promise<void> {
    const generation = this.#generation;
    const asking = this.#admit(generation);
    this.#asking = asking;
    try {
      const server = await asking;
      // Nodes that have not restarted may know a longer ttl.
      await Promise.all(this.#others.map((other) => other.#learnLongestTtl()));
      if (generation !== this.#generation) throw new Error('its connection broke during the check for a restart');
      this.#server = server;
      this.#problem = undefined;
    } catch (error) {
      const problem = problemOf(error);
      this.#problem = nodeError(
        this.settings.node.name,
        `it is unknown whether it has restarted, so it does not vote: ${problem}`,
        problem.includes('NOPERM') ? 'Give its user that right, or set admission: false.' : undefined,
      );
    }
  }

  async #admit(generation: unknown): Promise<KnownServer> {
    const identity = await this.#identity(generation);
    const askedAt = this.settings.now();
    const answer = await this.settings.node.admit(identity, this.settings.longest.ms);
    if (answer.status === 'unavailable') throw new Error(answer.causes[0]!.problem);
    this.#learn(answer.longestMs);
    this.settings.proposals.learnTime({ node: this.settings.at, timeUs: answer.timeUs, askedAt });
    const since = this.settings.now() - answer.sinceMs;
    return { ...identity, generation, epoch: answer.epoch, since };
  }

  /** Learns the longest ttl that this node knows, if the node answers. */
  async #learnLongestTtl(): Promise<void> {
    const server = this.#current;
    if (!server) return void (await this.#asking?.catch(() => {}));
    const answer = await this.settings.node.admit(server, this.settings.longest.ms);
    if (answer.status === 'admitted') this.#learn(answer.longestMs);
  }

  #learn(longestMs: number): void {
    this.settings.longest.ms = Math.max(this.settings.longest.ms, longestMs);
  }

  /** Asks for the server's identity, once for each connection even if the server hangs. */
  #identity(generation: unknown): Promise<ServerIdentity> {
    const open = this.#identifying;
    const asked = open && open.generation === generation ? open : this.#identify(generation);
    return inTime(asked.identity, this.settings.timeoutMs, () => {
      this.settings.node.connection.suspect(() => this.#identifying === asked);
      throw new Error(`no answer within ${this.settings.timeoutMs} ms`);
    });
  }

  #identify(generation: unknown): { generation: unknown; identity: Promise<ServerIdentity> } {
    const asked = { generation, identity: identify(this.settings.node.connection.client) };
    const forget = () => {
      if (this.#identifying === asked) this.#identifying = undefined;
    };
    asked.identity.then(forget, forget);
    return (this.#identifying = asked);
  }

  /** Returns how long it still abstains, in milliseconds. */
  #waitMs({ since }: KnownServer): number {
    const { ms } = this.settings.longest;
    return since + abstentionMs(ms) - this.settings.now();
  }

  #mustWait(waitMs: number): NodeError {
    return new NodeError(
      this.settings.node.name,
      `it votes in ${Math.ceil(waitMs)} ms (the longest ttlMs is ${this.settings.longest.ms})`,
      WAIT_FOR_VOTES,
    );
  }

  /** The server of the current connection, if it has been checked. */
  get #current(): KnownServer | undefined {
    return this.#server?.generation === this.#generation ? this.#server : undefined;
  }

  get #generation(): unknown {
    return this.settings.node.connection.client.generation;
  }
}

/**
 * Returns how long a node abstains after it began to keep all its locks, in milliseconds. After that, every forgotten lock has expired, and the
 * next tokens of the node are above all forgotten tokens. Both can differ from its time by the limit of proposals: the forgotten tokens may have
 * been ahead, and the next ones behind.
 * @param longestMs the longest ttl in use
 */
function abstentionMs(longestMs: number): number {
  return longestMs + driftMs(longestMs) + 2 * (MAX_PROPOSAL_DISTANCE_US / 1_000);
}
