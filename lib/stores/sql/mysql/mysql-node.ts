import { setTimeout as delay } from 'node:timers/promises';
import {
  EXCLUSIVE,
  type AcquireOutcome,
  type AcquireRequest,
  type ExtendOutcome,
  type ExtendRequest,
  type Grant,
  type GuardStatement,
  type ReleaseOutcome,
  type Taken,
  type Transfer,
  type TransferOutcome,
} from '../../../core/backend/lock-backend.js';
import { leftMs, monotonic } from '../../../core/time/clock.js';
import {
  isFailed,
  StoredGrant,
  type Standalone,
  type Answer,
  type AttemptCallback,
  type Failed,
  type ReleaseRequest,
} from '../../node/server.backend.js';
import { sqlError } from '../advice.js';
import { EVERY_MS, JANITOR_KEY } from '../janitor.js';
import type { Row, SqlClient, SqlSource } from '../sql-client.js';
import { SqlFault } from '../sql-fault.js';
import {
  extensionOf,
  GUARDED_FOR_MS,
  is,
  releaseOf,
  SqlNode,
  text,
  transferOf,
  type Seen,
  type SqlSettings,
} from '../sql-node.js';
import type { Answered } from '../statement-runner.js';
import { stored } from '../stored-key.js';
import { ddl, guardOf, isOff, mysqlStatements, type MysqlStatements } from './statements.js';

/**
 * The operations on locks in a table of MySQL or MariaDB. No operation rejects, except after a bug. These databases cannot send
 * notifications, so there is no queue: the waiting calls of a process poll together.
 */
export class MysqlNode extends SqlNode {
  readonly store = 'MySQL';
  readonly pollEveryMs = 25;
  protected readonly statements: MysqlStatements;
  protected readonly ddl: string;

  constructor(source: SqlSource, settings: SqlSettings, alone?: Standalone) {
    super(source, settings, alone);
    this.statements = mysqlStatements(settings.table);
    this.ddl = ddl(settings.table);
  }

  protected attempt(request: AcquireRequest, done: AttemptCallback): void {
    const { key, owner, ttlMs, turns = 1, asker } = request;
    const values = [stored(key), owner, ttlMs, turns];
    const taken: Answered = (row, sentAt) => {
      done(row instanceof SqlFault ? this.failedBy(row) : outcomeOf(row, request, sentAt), sentAt);
    };
    this.runner.run(this.statements.acquire, stored(key), values, taken, asker);
  }

  protected prolong({ grant, ttlMs, waiting }: ExtendRequest, done: (answer: Answer<ExtendOutcome>) => void): void {
    const { key, owner } = grant;
    const values = [stored(key), owner, ttlMs, waiting?.calls ?? 0];
    this.runner.run(this.statements.extend, stored(key), values, this.reading(extensionOf, done));
  }

  protected move(request: Transfer, done: (answer: Answer<TransferOutcome>) => void): void {
    const { key, from, to, ttlMs, mints, atLeast = false } = request;
    const values = [stored(key), from, to, ttlMs, mints, atLeast];
    const moved = this.reading((row, sentAt) => transferOf(row, request, sentAt), done);
    this.runner.run(this.statements.transfer, stored(key), values, moved);
  }

  guard(grants: readonly Grant[]): GuardStatement {
    const hex = (part: string) => Buffer.from(part).toString('hex');
    return {
      dialect: 'mysql',
      text: guardOf(this.settings.table, grants.length),
      values: grants.flatMap(({ key, owner, fencingToken }) => [hex(stored(key)), hex(owner), fencingToken ?? 0]),
    };
  }

  /** Retries for a while if another session has locked the row. A guard locks it until it ends, an acquisition only briefly. */
  async seize(key: string, from?: string): Promise<Taken | undefined | Failed> {
    const giveUpAt = monotonic() + this.settings.commandTimeoutMs;
    for (;;) {
      const holding = await this.view(key);
      if (isFailed(holding)) return holding;
      const owner = holding?.holders[0].owner;
      if (owner === undefined || (from !== undefined && owner !== from)) return undefined;
      const row = await this.runner.ask(this.statements.release, [stored(key), owner], stored(key));
      if (row instanceof SqlFault) return this.failedBy(row);
      if (!is(row.is_locked)) return is(row.is_done) ? { from: [owner] } : undefined;
      if (monotonic() >= giveUpAt) return this.guarded();
      await delay(this.pollEveryMs);
    }
  }

  protected giveBack(
    { key, owner }: Grant,
    { keepUntil }: ReleaseRequest,
    done: (answer: Answer<ReleaseOutcome>) => void,
  ): void {
    const keptForMs = leftMs(keepUntil);
    const { keep, release } = this.statements;
    const given = this.reading(releaseOf, done);
    if (keptForMs > 0) this.runner.run(keep, stored(key), [stored(key), owner, keptForMs, 0], given);
    else this.runner.run(release, stored(key), [stored(key), owner], given);
  }

  protected takeSweep(owner: string): Promise<boolean> {
    return new Promise((resolve) => {
      const request = { key: JANITOR_KEY, owner, ttlMs: EVERY_MS };
      this.attempt({ ...request, hold: EXCLUSIVE }, ({ status }) => resolve(status === 'acquired'));
    });
  }

  protected async claimSession(client: SqlClient, name: string): Promise<boolean> {
    const [row] = await client.query({ name: 'claim_session', text: CLAIM_SESSION }, [name, name]);
    const { is_claimed, session } = row!;
    if (is(is_claimed)) return true;
    // The session may have ended by now.
    if (session !== null)
      await client.query({ name: 'end_session', text: `KILL ${Number(session)}` }, []).catch(() => {});
    return false;
  }

  protected async look(client: SqlClient): Promise<Seen> {
    const rows = await client.query({ name: 'variables', text: VARIABLES }, []);
    const variables = new Map(rows.map((row) => Object.values(row) as [name: string, value: string]));
    const isOn = (name: string) => !isOff(variables.get(name) ?? 'OFF');
    const logsStatements = isOn('log_bin') && variables.get('binlog_format') === 'STATEMENT';
    const problem = logsStatements
      ? sqlError(this.name, 'its binlog_format is STATEMENT', 'ER_BINLOG_STMT_MODE_AND_ROW_ENGINE')
      : undefined;
    return { table: await this.#table(client), readsOnly: isOn('read_only'), problem };
  }

  async #table(client: SqlClient): Promise<Seen['table']> {
    try {
      await client.query({ name: 'has_table', text: `SELECT 1 FROM ${this.settings.table} LIMIT 0` }, []);
      return 'there';
    } catch (error) {
      const { code } = error as { code?: string };
      if (code === 'ER_NO_SUCH_TABLE') return 'missing';
      if (code === 'ER_TABLEACCESS_DENIED_ERROR') return 'denied';
      throw error;
    }
  }
}

/** Acquires a named lock of the session. Also returns the session that holds the lock. */
const CLAIM_SESSION = 'SELECT GET_LOCK(?, 0) AS is_claimed, IS_USED_LOCK(?) AS session';

/** Read from the session, since the global defaults may have changed since it began. */
const VARIABLES = "SHOW VARIABLES WHERE Variable_name IN ('read_only', 'log_bin', 'binlog_format')";

function outcomeOf(row: Row, request: AcquireRequest, sentAt: number): Answer<AcquireOutcome> {
  const { holder, remaining, fence, is_kept, acquired_us } = row;
  const { owner, turns = 1 } = request;
  const remainingMs = Number(remaining ?? 0);
  if (holder === owner && remainingMs > 0 && !is(is_kept)) {
    const lastToken = Number(fence);
    // A block begins with the time of the grant. Otherwise only one token was minted.
    const fencingToken = lastToken === Number(acquired_us) + turns - 1 ? lastToken - turns + 1 : lastToken;
    return { status: 'acquired', grant: new StoredGrant(request, fencingToken, lastToken), sentAt };
  }
  const isHeld = remainingMs > 0;
  // A free row that was not taken is locked, briefly or by a guard. A missing row is being inserted, or was just deleted.
  return {
    status: 'contended',
    queued: false,
    owner: text(holder) || undefined,
    remainingMs: isHeld ? remainingMs : holder === undefined ? 0 : GUARDED_FOR_MS,
    isKept: (isHeld && is(is_kept)) || undefined,
  };
}
