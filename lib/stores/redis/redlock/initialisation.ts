import { NodeError } from '../../../api/errors.js';
import { printable } from '../../../api/printable.js';
import { LONGEST_TTL_MS } from '../../../core/backend/lock-backend.js';
import type { BackendReport } from '../../../core/backend/report.js';
import { inTime } from '../../../core/time/time-limit.js';
import { problemOf } from '../../node/problem-of.js';
import { identify, type ServerIdentity } from '../client/server-identity.js';
import type { RedisNode } from '../node/redis-node.js';
import { abstentionMs } from './admission.js';

/** For longer than this no client has a node wait, whatever its ttl. */
const EVER_MS = abstentionMs(LONGEST_TTL_MS);

const WITHOUT_RIGHT =
  'its user lacks a right: beside those that locks need, only a look at all keys needs +scan (ACL SETUSER)';

/** What an initialisation needs. */
export interface InitialisationParts {
  /** All nodes of the Redlock. */
  nodes: readonly RedisNode[];
  /** First part of every key. */
  keyPrefix: string;
  /** How long a server may take to be reached, in milliseconds. */
  connectTimeoutMs: number;
  /** How long it may take to say what it is, in milliseconds. */
  timeoutMs: number;
  /** Checks the servers: they must be independent masters. */
  report: (timeoutMs: number) => Promise<BackendReport>;
}

/** Why nodes are not initialised. */
export interface InitialisationProblem {
  message: string;
  /** A node could not be asked; otherwise its answer is the reason. */
  isUnavailable: boolean;
}

/**
 * The nodes that were initialised, by their names, and why the others were not. Nothing was written on those, unless one of them
 * did not answer any more.
 */
export interface InitialisationOutcome {
  initialised: string[];
  problems: InitialisationProblem[];
}

/**
 * Lets the nodes of a new Redlock vote at once, which would wait for one ttl otherwise: nobody but an operator can tell them from
 * nodes that have lost their data. See docs/adr/0041-command-line.md.
 *
 * A node is initialised only if none of all nodes has a key of the prefix. Whatever it may have forgotten shows on the others, as
 * a majority has every lock, and counters stay.
 */
export class Initialisation {
  constructor(private readonly parts: InitialisationParts) {}

  get keyPrefix(): string {
    return this.parts.keyPrefix;
  }

  /** The names of all nodes. */
  get names(): string[] {
    return this.parts.nodes.map(({ name }) => name);
  }

  /** Looks at all nodes, and writes nothing. @returns what keeps them from being initialised */
  async examine(): Promise<InitialisationProblem[]> {
    return (await this.#look()).problems;
  }

  /** Looks at all nodes; if none has been used, initialises each that is still unused in the moment of the write. */
  async initialise(): Promise<InitialisationOutcome> {
    const { problems, identities } = await this.#look();
    if (problems.length > 0) return { initialised: [], problems };
    const outcomes = await Promise.all(this.parts.nodes.map((node, at) => this.#ask(node, identities[at]!, EVER_MS)));
    return {
      initialised: this.names.filter((_, at) => outcomes[at] === undefined),
      problems: outcomes.filter((problem) => problem !== undefined),
    };
  }

  async close(): Promise<void> {
    await Promise.all(this.parts.nodes.map((node) => node.close()));
  }

  /** The identities are read first: a server that starts between this look and a write has another one, and waits. */
  async #look(): Promise<{ problems: InitialisationProblem[]; identities: readonly ServerIdentity[] }> {
    const identified = await Promise.all(this.parts.nodes.map((node) => this.#identity(node)));
    const unavailable = identified.filter((answer) => answer instanceof NodeError);
    if (unavailable.length > 0) return { problems: unavailable.map(unavailability), identities: [] };
    const identities = identified as ServerIdentity[];
    const [dependent, used] = await Promise.all([
      this.#dependencies(),
      Promise.all(this.parts.nodes.map((node, at) => this.#ask(node, identities[at]!))),
    ]);
    return { problems: [...dependent, ...used.filter((problem) => problem !== undefined)], identities };
  }

  async #identity(node: RedisNode): Promise<ServerIdentity | NodeError> {
    const problem = await node.connection.ready(this.parts.connectTimeoutMs);
    if (problem) return problem;
    const late = () => new NodeError(node.name, `no answer within ${this.parts.timeoutMs} ms`);
    return inTime<ServerIdentity | NodeError>(
      identify(node.connection.client).catch((error: unknown) => new NodeError(node.name, problemOf(error))),
      this.parts.timeoutMs,
      late,
    );
  }

  /** A replica has the keys of its master, and a server that is listed twice has two votes. */
  async #dependencies(): Promise<InitialisationProblem[]> {
    const { nodes, findings } = await this.parts.report(this.parts.timeoutMs);
    const replicas = nodes.filter((node) => 'role' in node && node.role === 'replica');
    return [
      ...nodes
        .filter(({ reachable }) => !reachable)
        .map(({ name, problem }) => unavailability(new NodeError(name, problem!))),
      ...replicas.map(({ name }) => ({ message: `${name}: it is a replica`, isUnavailable: false })),
      ...findings
        .filter(({ severity }) => severity === 'error')
        .map(({ message }) => ({ message, isUnavailable: false })),
    ];
  }

  async #ask(node: RedisNode, identity: ServerIdentity, forMs?: number): Promise<InitialisationProblem | undefined> {
    const answer = await node.initialise(identity, forMs);
    switch (answer.status) {
      case 'fault': {
        const { error, mayHaveRun } = answer;
        if (isForbidden(error)) return unavailability(new NodeError(node.name, WITHOUT_RIGHT));
        if (forMs === undefined || !mayHaveRun) return unavailability(error);
        return unavailability(new NodeError(node.name, `${error.problem}: it may have been initialised all the same`));
      }
      case 'new':
        return undefined;
      case 'used':
        return {
          message: `${node.name}: it has been used, as it has the key ${printable(answer.key)}`,
          isUnavailable: false,
        };
      case 'full':
        return {
          message: `${node.name}: it has more than ${answer.keys} keys, and would be held up while they are looked at`,
          isUnavailable: false,
        };
    }
  }
}

/** Before 7.2 Redis does not say which command of a script it refuses. */
function isForbidden({ problem }: NodeError): boolean {
  return /NOPERM|can't run this command|ACL failure/.test(problem);
}

function unavailability({ message }: NodeError): InitialisationProblem {
  return { message, isUnavailable: true };
}
