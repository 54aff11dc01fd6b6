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

/** What a check needs. */
export interface AdmissionSettings {
  node: RedisNode;
  /** The index of the node. */
  at: number;
  /** Shared by the checks of all nodes. */
  longest: LongestTtl;
  /** How long each question may take, in milliseconds. */
  timeoutMs: number;
  /** The clock of the service, in milliseconds. */
  now: () => number;
  /** Learn the time of the node. */
  proposals: Proposals;
}

/** A server at the other end of a connection, with its answers. */
interface KnownServer extends ServerIdentity {
  /** Stands for the connection that it was asked on: a restart breaks it. */
  generation: unknown;
  /** Changes when the server loses data. */
  epoch: string;
  /** Since when it knows all locks that it granted, by the clock of this process. */
  since: number;
  /** Set for good once all locks that it granted before have ended. */
  admission?: Admission;
}

/**
 * Keeps a node of a Redlock from voting until every lock that it may have granted and forgotten has ended: the delayed
 * restart of the Redlock description, done by the clients. See docs/adr/0014-restart-guard.md.
 */
export class AdmissionCheck {
  #others: readonly AdmissionCheck[] = [];
  #server?: KnownServer;
  /** Why the last check failed. */
  #problem?: NodeError;
  #checking?: Promise<void>;
  #asking?: Promise<unknown>;
  /** The question for the identity of a server that has not answered yet. */
  #identifying?: { generation: unknown; identity: Promise<ServerIdentity> };

  constructor(private readonly settings: AdmissionSettings) {}

  /** Makes the checks of the other nodes known to this one. @param checks the checks of all nodes */
  join(checks: readonly AdmissionCheck[]): void {
    this.#others = checks.filter((check) => check !== this);
  }

  /** Whether it is known if the node votes. */
  get isSettled(): boolean {
    return this.#current !== undefined || (this.#problem !== undefined && !this.#checking);
  }

  /** The admission that the node votes under, or why it does not vote. */
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

  /** Called when the node answers that it has lost its data since it was admitted in this epoch. */
  revoke(epoch: string): void {
    if (this.#server?.epoch === epoch) this.#server = undefined;
    void this.checked();
  }

  /** Checks the node for a restart, unless that was done on this connection. Never rejects. */
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
      // Nodes that have not restarted may know of a longer ttl.
      await Promise.all(this.#others.map((other) => other.#heard()));
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

  /** Waits until the longest ttl that this node knows of is known here, too, as far as it can be found out. */
  async #heard(): Promise<void> {
    const server = this.#current;
    if (!server) return void (await this.#asking?.catch(() => {}));
    const answer = await this.settings.node.admit(server, this.settings.longest.ms);
    if (answer.status === 'admitted') this.#learn(answer.longestMs);
  }

  #learn(longestMs: number): void {
    this.settings.longest.ms = Math.max(this.settings.longest.ms, longestMs);
  }

  /** Asks for the server's identity: one that hangs is asked only once for each connection. */
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

  /** How long it still abstains. */
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

  /** The server that answers now, if it was checked. */
  get #current(): KnownServer | undefined {
    return this.#server?.generation === this.#generation ? this.#server : undefined;
  }

  get #generation(): unknown {
    return this.settings.node.connection.client.generation;
  }
}

/**
 * How long a node abstains since it has kept all its locks, in milliseconds: until every lock that it may have forgotten has
 * ended, and its time is above all tokens that it may have forgotten. These were ahead of a node by up to the limit of votes, and
 * its next ones may be as far behind it.
 * @param longestMs the longest ttl in use
 */
function abstentionMs(longestMs: number): number {
  return longestMs + driftMs(longestMs) + 2 * (MAX_PROPOSAL_DISTANCE_US / 1_000);
}
