import { NodeError } from '../../../api/errors.js';
import type { ListRequest } from '../../../core/backend/lock-backend.js';
import { matcherOf } from '../../../core/backend/matcher.js';
import type { Failed, Scan } from '../../node/server.backend.js';
import { monotonic } from '../../../core/time/clock.js';
import { inTime } from '../../../core/time/time-limit.js';
import { nodeError } from '../client/advice.js';
import { problemOf } from '../../node/problem-of.js';
import { CommandFault, type RedisClient } from '../client/redis-client.js';
import type { RedisConnection } from '../client/redis-connection.js';
import type { LockKeys } from './lock-keys.js';

/** The number of keys that one SCAN checks. Redis serves no lock during that half a millisecond. */
const KEYS_PER_SCAN = 1_000;

const WITHOUT_RIGHT = 'Give its user the right +scan (ACL SETUSER), which only LockService.list() needs.';

/**
 * Finds locks by SCAN, on the connection that locks use. It has only one command in flight to each server, so other commands wait for
 * one SCAN at most.
 */
export class KeyScan {
  /** The connections with an overdue command. They get no further SCAN. */
  readonly #silent = new WeakSet<object>();

  constructor(
    private readonly connection: RedisConnection,
    private readonly keys: LockKeys,
    private readonly commandTimeoutMs: number,
  ) {}

  /** Never rejects. One unreachable server fails the whole search, because a list without its locks would look complete. */
  async run({ match, limit, budgetMs }: ListRequest): Promise<Scan | Failed> {
    const { connection } = this;
    if (!connection.isReady) return failedBy([connection.problem]);
    const { client } = connection;
    const pattern = this.keys.pattern(match);
    const fits = matcherOf(match);
    const endsAt = monotonic() + budgetMs;
    const found = new Set<string>();
    const errors: NodeError[] = [];
    let calls = 0;
    let complete = true;
    const search = async (name: string | undefined) => {
      const server = client.topology.masters().find((master) => master.name === name);
      if (!server)
        throw new NodeError(name ?? client.name, name ? 'not connected' : 'some of its slots have no master');
      let cursor = '0';
      let searched: unknown; // the connection: a cursor is invalid after a restart or a failover
      do {
        const page = await this.#scan(server, cursor, pattern);
        searched ??= server.generation;
        if (server.generation !== searched) throw nodeError(server.name, 'its connection broke during the search');
        calls++;
        for (const each of page.names) {
          const key = this.keys.keyIn(each);
          if (key !== undefined && fits(key)) found.add(key);
        }
        ({ cursor } = page);
      } while (cursor !== '0' && errors.length === 0 && found.size <= limit && monotonic() < endsAt);
      complete &&= cursor === '0';
    };
    const searching = [...client.topology.servers].map((name) =>
      search(name).catch((error: unknown) => {
        errors.push(error instanceof NodeError ? error : nodeError(name ?? client.name, problemOf(error)));
      }),
    );
    await Promise.all(searching);
    if (errors.length > 0) return failedBy(errors);
    return { keys: [...found], complete, scanned: calls * KEYS_PER_SCAN };
  }

  /** @throws NodeError, or the error of the client */
  async #scan(server: RedisClient, cursor: string, pattern: string): Promise<{ cursor: string; names: string[] }> {
    const { name, generation } = server;
    const connection = generation as object | undefined; // undefined before the first command to a node of a Cluster
    if (connection && this.#silent.has(connection)) {
      throw nodeError(name, 'it does not answer (an earlier command is still in flight)');
    }
    const asked = server.call('SCAN', cursor, 'MATCH', pattern, 'COUNT', KEYS_PER_SCAN, 'TYPE', 'string');
    const answered = inTime(asked, this.commandTimeoutMs, () => {
      const unanswered = connection ?? (server.generation as object | undefined);
      if (unanswered) this.#noteSilence(unanswered, asked);
      throw nodeError(name, `no answer within ${this.commandTimeoutMs} ms`);
    });
    const answer = await answered.catch((error: unknown) => {
      if (!(error instanceof CommandFault && error.kind === 'refused')) throw error;
      throw nodeError(name, error.message, error.message.startsWith('NOPERM') ? WITHOUT_RIGHT : undefined);
    });
    const [next, names] = Array.isArray(answer) ? (answer as [cursor?: string | number, names?: unknown]) : [];
    if (next === undefined || !Array.isArray(names)) throw new NodeError(name, 'unexpected answer to SCAN');
    return { cursor: String(next), names: names.map(String) };
  }

  #noteSilence(connection: object, asked: Promise<unknown>): void {
    this.#silent.add(connection);
    const answered = () => void this.#silent.delete(connection);
    asked.then(answered, answered);
    this.connection.suspect(() => this.#silent.has(connection));
  }
}

function failedBy(causes: NodeError[]): Failed {
  return { status: 'unavailable', causes, mayHaveRun: false, disconnected: false };
}
