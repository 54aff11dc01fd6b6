import { randomUUID } from 'node:crypto';
import { setTimeout as delay } from 'node:timers/promises';
import { adviceFor, LockOptionsError, LockUnavailableError, NodeError, type LockError } from '../../api/errors.js';
import type {
  ExtendOutcome,
  Holding,
  ListRequest,
  ReleaseOutcome,
  Transfer,
  TransferOutcome,
  Waiting,
} from '../../core/backend/lock-backend.js';
import { matcherOf } from '../../core/backend/matcher.js';
import { monotonic } from '../../core/time/clock.js';
import {
  failed,
  ServerBackend,
  StoredGrant,
  type Standalone,
  type Answer,
  type Failed,
  type Scan,
} from '../node/server.backend.js';
import { NoTableError, sqlError } from './advice.js';
import { Janitor, type SweptPage } from './janitor.js';
import type { Row, SqlClient, SqlSource } from './sql-client.js';
import { SqlConnection, type NotAdmitted } from './sql-connection.js';
import { faultOf, isPassing, isReadOnly, SqlFault } from './sql-fault.js';
import { StatementRunner, type Answered } from './statement-runner.js';
import type { Statement } from './statement.js';
import { fromStored, stored } from './stored-key.js';

/** The retry pause while a transaction still guards an expired lock, in milliseconds. */
export const GUARDED_FOR_MS = 100;
/** The pause between two checks whether a session has ended, in milliseconds. */
const LOOK_AGAIN_MS = 10;

export interface SqlSettings {
  /** Quoted. */
  readonly table: string;
  readonly createTable: boolean;
  /** The time limit of a statement, in milliseconds. */
  readonly commandTimeoutMs: number;
  /** How long an unused row is kept, in milliseconds; undefined means forever. */
  readonly keepMs?: number;
  /** The name of this process, with which its owner values begin. */
  readonly processName: string;
  /** The clock of the service, in milliseconds. */
  readonly now: () => number;
}

/** The statements that all dialects have. */
export interface OperatorStatements {
  readonly inspect: Statement;
  /** Returns a page of keys: at or after the first argument, and after the second. `held` is a JSON array of the keys with a held lock. */
  readonly scan: Statement;
  /** Deletes rows of one page of the table. Arguments: the last key of the previous page, and how long a row must be unused, in ms. */
  readonly sweep: Statement;
}

/** The result of the check of a new connection. */
export interface Seen {
  /** `denied`: the user has no rights on the table, or the table is missing. The database does not say which. */
  readonly table: 'there' | 'missing' | 'denied';
  readonly readsOnly: boolean;
  /** A reason to refuse the database regardless of its table. */
  readonly problem?: NodeError;
}

/** The common part of all dialects: the connection, queries of operators, and the janitor. */
export abstract class SqlNode extends ServerBackend {
  readonly whyOnlyExclusive =
    'A database supports only exclusive locks so far. For shared locks and permits, register one Redis or a Redis Cluster.';
  readonly connection: SqlConnection;
  protected readonly runner: StatementRunner;
  /** Part of the names of its sessions on the server. */
  readonly #id = randomUUID();
  readonly #janitor?: Janitor;

  protected constructor(
    source: SqlSource,
    protected readonly settings: SqlSettings,
    alone?: Standalone,
  ) {
    super(settings, alone);
    const { commandTimeoutMs, keepMs, now, processName } = settings;
    this.connection = new SqlConnection(source, commandTimeoutMs, (client) => this.#admit(client));
    this.runner = new StatementRunner(this.connection, commandTimeoutMs, now);
    this.connection.onReady = () => this.hurry();
    if (keepMs !== undefined)
      this.#janitor = new Janitor(
        () => this.takeSweep(`${processName}/janitor`),
        (behind) => this.sweep(behind, keepMs),
      );
  }

  protected get isAnswered(): boolean {
    return this.runner.isAnswered;
  }

  /** The statement that creates the table. */
  protected abstract readonly ddl: string;
  protected abstract readonly statements: OperatorStatements;
  /**
   * Claims a unique name for the session of a new connection, and ends the other session that has the name.
   * @returns whether the session has the name now @throws the error of the driver
   */
  protected abstract claimSession(client: SqlClient, name: string): Promise<boolean>;
  /** Checks the database of a new connection. @throws the error of the driver */
  protected abstract look(client: SqlClient): Promise<Seen>;
  /** Acquires the lock of the janitor. @returns whether it was granted */
  protected abstract takeSweep(owner: string): Promise<boolean>;

  async view(key: string): Promise<Holding | undefined | Failed> {
    const row = await this.runner.ask(this.statements.inspect, [stored(key)], stored(key));
    return row instanceof SqlFault ? this.failedBy(row) : holdingOf(row);
  }

  /** Reads the table in pages, in the order of the keys. */
  async scan({ match, limit, budgetMs }: ListRequest): Promise<Scan | Failed> {
    const fits = matcherOf(match);
    const [start = ''] = match.split('*');
    const from = stored(start);
    const endsAt = monotonic() + budgetMs;
    const keys: string[] = [];
    let [scanned, last] = [0, ''];
    for (;;) {
      const page = await this.runner.ask(this.statements.scan, [from, last]);
      if (page instanceof SqlFault) return this.failedBy(page);
      const held = page.held === null ? [] : (JSON.parse(text(page.held)) as string[]);
      keys.push(...held.map(fromStored).filter((key) => !key.startsWith('}') && fits(key)));
      scanned += Number(page.scanned);
      const complete = page.last === null || !text(page.last).startsWith(from);
      if (complete || keys.length > limit || monotonic() >= endsAt) return { keys, complete, scanned };
      last = text(page.last);
    }
  }

  /** Runs a statement that concerns no particular lock. @returns its row, or the error */
  async ask(statement: Statement, values: readonly unknown[]): Promise<Row | NodeError> {
    const row = await this.runner.ask(statement, values);
    return row instanceof SqlFault ? this.failedBy(row).causes[0]! : row;
  }

  protected errorOf(problem: string): NodeError {
    return sqlError(this.name, problem);
  }

  protected unreachable(problem: NodeError, timeoutMs: number): LockError {
    const { notAdmitted } = this.connection;
    if (notAdmitted) return notAdmitted.error;
    const message =
      problem.advice === undefined
        ? `${this.store} cannot be reached (waited ${timeoutMs} ms): ${problem.message}. Start it, correct the address or the ` +
          'credentials, or set lazyConnect: true to start without it.'
        : `${this.store} cannot be used: ${problem.message}. ${adviceFor([problem])}`;
    return new LockUnavailableError(message, undefined, [problem]);
  }

  override async close(): Promise<void> {
    this.#janitor?.close();
    await super.close();
  }

  /** @returns a callback that reads the answer to an operation, or fails if a transaction guards the lock */
  protected reading<T>(
    read: (row: Row, sentAt: number) => T | Failed,
    done: (answer: T | Failed, sentAt: number) => void,
  ): Answered {
    return (row, sentAt) => {
      if (row instanceof SqlFault) done(this.failedBy(row), sentAt);
      else done(is(row.is_guarded) || is(row.is_locked) ? this.guarded() : read(row, sentAt), sentAt);
    };
  }

  /** Fails because a transaction still guards the lock: nobody can take it over before the transaction ends. */
  protected guarded(): Failed {
    const error = new NodeError(
      this.name,
      'a transaction that guards the lock is still open',
      'Release the lock after the transaction has ended. If its client is gone, the transaction ends with its session.',
      true,
    );
    return failed(error);
  }

  protected failedBy({ code, problem, mayHaveRun, disconnected, isOfKey }: SqlFault): Failed {
    // The fault of an unsent statement has no details. The connection knows the reason.
    const isDown = !mayHaveRun && !this.connection.isReady;
    const error = isDown ? this.connection.problem : sqlError(this.name, problem, code, isOfKey);
    if (code !== undefined && isReadOnly(code)) this.connection.leaveReplica(code);
    return failed(error, mayHaveRun, disconnected);
  }

  /** Deletes unused rows of one page of the table. @throws NodeError */
  async sweep(behind: string, keepMs: number): Promise<SweptPage> {
    const page = await this.runner.ask(this.statements.sweep, [behind, keepMs]);
    if (page instanceof SqlFault) throw this.failedBy(page).causes[0]!;
    return { last: page.last === null ? undefined : text(page.last) };
  }

  async #admit(client: SqlClient): Promise<NotAdmitted | undefined> {
    const { createTable, table } = this.settings;
    await this.endLastSession(client, 'statements');
    const seen = await this.look(client);
    if (seen.readsOnly) throw new ReadOnly();
    if (seen.problem) {
      const { advice, message } = seen.problem;
      return { problem: seen.problem, error: new LockOptionsError(`${message}. ${advice}`) };
    }
    if (seen.table === 'there') return undefined;
    const isDenied = seen.table === 'denied';
    const what = isDenied ? `no table ${table}, or its user has no rights on it` : `no table ${table}`;
    const problem = sqlError(this.name, `it has ${what}`, isDenied ? 'ER_TABLEACCESS_DENIED_ERROR' : '42P01');
    const asOneLine = this.ddl.replaceAll(/ *--.*/g, '').replaceAll(/\s+/g, ' '); // error messages have one line
    if (createTable) {
      const reason = await this.#create(client);
      if (reason === undefined) return undefined;
      const found = `The table ${table} for locks cannot be created in ${this.name}: ${reason}.`;
      return { problem, error: new NoTableError(found, 'Create it', asOneLine) };
    }
    const how = 'in a migration, or set createTable: true for tests and first steps';
    if (!isDenied) {
      const found = `${this.name} has no table ${table} for locks.`;
      return { problem, error: new NoTableError(found, 'Create it', asOneLine, how) };
    }
    const found =
      `${this.name} has no table ${table} for locks, or its user has no rights on it: MySQL gives such a user the same error. ` +
      'If it is there, give the user SELECT, INSERT, UPDATE and DELETE on it.';
    return { problem, error: new NoTableError(found, 'If not, create it', asOneLine, how) };
  }

  /**
   * Ends the session of the previous connection, if the server still has it: one of its statements may hang, or arrive late. After that,
   * new statements run after all abandoned ones, and no session is left behind.
   */
  protected async endLastSession(client: SqlClient, of: 'statements' | 'inbox'): Promise<void> {
    const name = `nest-redis-lock ${this.#id} ${of}`;
    const giveUpAt = monotonic() + this.settings.commandTimeoutMs / 2;
    while (!(await this.claimSession(client, name))) {
      if (monotonic() >= giveUpAt) throw new Error('the session of its last connection does not end');
      await delay(LOOK_AGAIN_MS);
    }
  }

  /** @returns why the table cannot be created; undefined if it exists now @throws a temporary error: the next connection tries again */
  async #create(client: SqlClient): Promise<string | undefined> {
    try {
      await client.query({ name: 'ddl', text: this.ddl }, []);
    } catch (error) {
      // Another process may have created it at the same time.
      if ((await this.look(client)).table === 'there') return undefined;
      const fault = faultOf(error, false);
      if (isPassing(fault)) throw error;
      return fault.problem;
    }
    return undefined;
  }
}

/** The server is a replica, or refuses writes. */
class ReadOnly extends Error {
  readonly code = '25006';

  constructor() {
    super('it is read-only');
  }
}

/** Reads a cell as text. */
export function text(cell: unknown): string {
  return cell as string;
}

/** Reads a cell as a flag, 1 or 0, whatever type the driver uses for numbers. */
export function is(cell: unknown): boolean {
  return Number(cell) === 1;
}

/** Reads the result of a transfer. It has a token if the new owner has the lock. */
export function transferOf(
  { token, is_held }: Row,
  { key, to, ttlMs, hold }: Transfer,
  sentAt: number,
): Answer<TransferOutcome> {
  if (token === null || token === undefined) return { status: 'lost', reason: is(is_held) ? 'stolen' : 'expired' };
  return { status: 'transferred', grant: new StoredGrant({ key, owner: to, ttlMs, hold }, Number(token)), sentAt };
}

export function extensionOf({ is_done, is_held }: Row, sentAt: number): Answer<ExtendOutcome> {
  if (is(is_done)) return { status: 'extended', sentAt };
  return { status: 'lost', reason: is(is_held) ? 'stolen' : 'expired' };
}

export function releaseOf({ is_done }: Row): Answer<ReleaseOutcome> {
  return { status: is(is_done) ? 'released' : 'gone' };
}

/** Reads the holder and the waiters of a lock from its row. */
export function holdingOf({
  holder,
  fence,
  is_kept,
  calls_behind,
  remaining,
  held_for,
  waiting,
}: Row): Holding | undefined {
  if (holder === null || holder === undefined || Number(remaining) <= 0) return undefined;
  return {
    holders: [
      {
        owner: text(holder),
        remainingMs: Number(remaining),
        fencingToken: Number(fence),
        heldForMs: Number.isFinite(Number(held_for)) ? Math.max(0, Math.floor(Number(held_for))) : undefined,
        isKept: is(is_kept) || undefined,
        calls: Number(calls_behind) || undefined,
      },
    ],
    waiting: typeof waiting === 'string' ? waiting.split('\n').map(placeOf) : undefined,
  };
}

/** Reads a place: its ticket, and the number of waiting calls. */
function placeOf(place: string): Waiting {
  const [ticket = '', calls] = place.split(' ');
  return { ticket, calls: calls ? Number(calls) : undefined };
}
