import { performance } from 'node:perf_hooks';
import { nextTick, outsideOfCalls, setImmediate } from '../../core/time/event-loop.js';
import { ACQUISITION, Command, EXTENSION, Lane, type Operation, type Wanted } from '../../core/backend/lane.js';
import type { Row, SqlClient } from './sql-client.js';
import type { SqlConnection } from './sql-connection.js';
import { faultOf, isWorthSplitting, isRetryable, SqlFault } from './sql-fault.js';
import type { Statement } from './statement.js';

/**
 * Receives the answer to an operation. It must not throw.
 * @param sentAt the time when the statement was sent, or when it failed unsent
 */
export type Answered = (answer: Row | SqlFault, sentAt: number) => void;

/** An operation: a statement for one key. */
interface KeyedOperation extends Operation {
  /** Operations with the same key never share a statement. */
  readonly key: string;
  /** One element for each array argument of the statement. */
  readonly values: readonly unknown[];
  readonly done: Answered;
  /** When it first met a row that another session has locked, and its last pause before a retry. */
  skippedAt?: number;
  pauseMs?: number;
}

class StatementCommand extends Command<StatementCommand, KeyedOperation> {
  readonly #keys = new Set<string>();
  /** The time when it was sent, by the clock of the service. */
  sentAt = 0;

  /** @param firstSentAt the time of the first attempt, if this is a retry. A retry has only one operation */
  constructor(
    readonly statement: Statement,
    readonly firstSentAt?: number,
  ) {
    super(statement.order, statement.most);
  }

  canTake({ key }: KeyedOperation): boolean {
    return this.firstSentAt === undefined && !this.#keys.has(key);
  }

  add(operation: KeyedOperation): void {
    this.#keys.add(operation.key);
    this.operations.push(operation);
  }

  /** Removes the operations with one of these keys. @returns the removed operations */
  without(keys: { has(key: string): boolean }): readonly KeyedOperation[] {
    const out = this.operations.filter(({ key }) => keys.has(key));
    if (out.length > 0) this.operations = this.operations.filter(({ key }) => !keys.has(key));
    return out;
  }

  /** The arguments of the statement. */
  get values(): readonly unknown[] {
    const [first] = this.operations;
    if (this.statement.most === 1) return first!.values;
    return first!.values.map((_, at) => this.operations.map(({ values }) => values[at]));
  }
}

// Shared, because an error object for each operation would be the largest cost while a server is down.
const NOT_CONNECTED = new SqlFault('not connected', false, true);
/** Replaces a row that the statement did not return. */
const NOTHING: Row = {};
const ROW_IS_HELD = new SqlFault('another session holds its row', false, false, '55P03', true);
/** The longest pause before a retry if another session has locked the row, in milliseconds. */
const LONGEST_PAUSE_MS = 25;
const WITHDRAWN = new SqlFault('withdrawn before it was sent', false);

/**
 * Runs statements on one connection, one after the other. An operation is sent at once if nothing is in flight. Others gather until the
 * answer arrives, and share statements for up to 100 locks. If the server does not answer in time, the runner drops the connection, which
 * would stay busy, and fails the waiting operations. So a server that hangs costs one time limit only.
 */
export class StatementRunner {
  readonly #lane = new Lane<StatementCommand>(1);
  /** By key: the operation whose row another session has locked, and the later operations for that row, in order. */
  readonly #paused = new Map<string, [Statement, KeyedOperation][]>();
  #unsettled = 0;
  #isFlushing = false;
  #timer?: NodeJS.Timeout;
  readonly #flush = () => {
    this.#isFlushing = false;
    this.#sendNext();
  };

  /** @param now the clock for the time when a statement is sent, in milliseconds */
  constructor(
    private readonly connection: SqlConnection,
    private readonly commandTimeoutMs: number,
    private readonly now: () => number,
  ) {}

  /** Whether the server has answered every statement. */
  get isAnswered(): boolean {
    return this.#unsettled === 0;
  }

  /** Runs a statement. @param key the key of the lock, if it concerns one @returns its row for that key, or a fault */
  ask(statement: Statement, values: readonly unknown[], key = ''): Promise<Row | SqlFault> {
    return new Promise((resolve) => this.run(statement, key, values, resolve));
  }

  /**
   * Runs a statement for one key.
   * @param done called after this method has returned, in the order of the server's answers
   * @param wanted checked before the operation is sent, which may be later: an unwanted operation fails instead
   */
  run(statement: Statement, key: string, values: readonly unknown[], done: Answered, wanted?: Wanted): void {
    this.#add(statement, { key, values, done, wanted });
  }

  #add(statement: Statement, operation: KeyedOperation): void {
    const waiting = this.#lane.commandFor(statement, operation);
    if (waiting) {
      waiting.add(operation);
      return;
    }
    const command = new StatementCommand(statement);
    command.add(operation);
    this.#wait(command);
  }

  #wait(command: StatementCommand): void {
    const isFirst = this.#unsettled === 0;
    this.#unsettled++;
    this.#lane.wait(command.statement, command);
    if (this.#isFlushing) return;
    // Extensions come in hundreds, and none is urgent.
    if (isFirst && command.order !== EXTENSION) this.#sendNext();
    else if (isFirst) {
      this.#isFlushing = true;
      nextTick(this.#flush);
    }
  }

  #sendNext(): void {
    outsideOfCalls(() => {
      for (let command = this.#lane.next(); command; command = this.#lane.next()) {
        this.#drop(command.removeUnwanted(), WITHDRAWN);
        if (this.#paused.size > 0 && command.order <= ACQUISITION) this.#holdBack(command);
        if (!this.connection.isReady) this.#drop(command.takeOperations(), NOT_CONNECTED);
        if (command.isWanted) this.#send(command);
        else this.#unsettled--;
      }
    });
  }

  #send(command: StatementCommand): void {
    const client = this.connection.client!;
    command.sentAt = this.now();
    this.#lane.noteSending(command, performance.now());
    if (!this.#timer) this.#lookAfter(this.commandTimeoutMs);
    command.statement.run(client, command.values).then(
      (rows) => this.#answered(command, rows),
      (error: unknown) => this.#failed(command, client, error),
    );
  }

  #answered(command: StatementCommand, answer: Row[] | SqlFault): void {
    if (!command.list) return; // given up
    this.#settled(command);
    this.#answer(command, answer);
    this.#sendNext();
  }

  #failed(command: StatementCommand, client: SqlClient, error: unknown): void {
    if (!command.list) return;
    const fault = faultOf(error, this.connection.client !== client);
    if (this.#mayRepeat(command, fault)) {
      this.#settled(command);
      this.#repeat(command);
      this.#sendNext();
      return;
    }
    // Before the client notices: otherwise waiting statements would be sent on the broken connection, and count as possibly run.
    if (fault.disconnected && this.connection.client === client) this.connection.drop(fault.problem);
    this.#answered(command, fault);
  }

  /** Sets the timer that checks whether the statement in flight is overdue. */
  #lookAfter(delayMs: number): void {
    this.#timer = outsideOfCalls(() => setTimeout(() => this.#lookForOverdue(), Math.ceil(delayMs))).unref();
  }

  #lookForOverdue(): void {
    // After a pause of this process timers run first, so it reads a pending answer before it gives up the statement.
    const now = performance.now();
    setImmediate(() => {
      this.#timer = undefined;
      const { command, since } = this.#lane.longestUnanswered ?? {};
      if (!command || since === undefined) return;
      const leftMs = since + this.commandTimeoutMs - now;
      if (leftMs > 0) {
        this.#lookAfter(leftMs);
        return;
      }
      const fault = new SqlFault(`no answer within ${this.commandTimeoutMs} ms`, true);
      this.connection.drop(fault.problem);
      this.#answered(command, fault);
    });
  }

  #settled(command: StatementCommand): void {
    this.#lane.remove(command);
    this.#unsettled--;
  }

  #mayRepeat({ firstSentAt, operations, sentAt }: StatementCommand, fault: SqlFault): boolean {
    if (isWorthSplitting(fault)) return operations.length > 1;
    return isRetryable(fault) && this.now() - (firstSentAt ?? sentAt) < this.commandTimeoutMs;
  }

  /** Sends each operation alone, so that the problem of one lock does not affect the others. */
  #repeat(command: StatementCommand): void {
    for (const operation of command.takeOperations()) {
      const alone = new StatementCommand(command.statement, command.firstSentAt ?? command.sentAt);
      alone.add(operation);
      this.#unsettled++;
      this.#lane.wait(undefined, alone);
    }
  }

  #answer(command: StatementCommand, answer: Row[] | SqlFault): void {
    const { sentAt, statement } = command;
    const operations = command.takeOperations();
    if (answer instanceof SqlFault) {
      for (const operation of operations) deliver(operation, answer, sentAt);
      return;
    }
    const rows = statement.most === 1 ? answer : byKey(operations, answer);
    operations.forEach((operation, at) => {
      const row = rows[at] ?? NOTHING;
      if (Number(row.is_skipped) !== 1) deliver(operation, row, sentAt);
      else if (this.#waits(operation)) this.#addLater(statement, operation);
      else deliver(operation, ROW_IS_HELD, sentAt);
    });
  }

  /** Whether an operation may still wait for a row that another session has locked. It has had no effect so far. */
  #waits(operation: KeyedOperation): boolean {
    operation.skippedAt ??= performance.now();
    return performance.now() - operation.skippedAt < this.commandTimeoutMs / 4;
  }

  #addLater(statement: Statement, operation: KeyedOperation): void {
    const { key } = operation;
    operation.pauseMs = Math.min(LONGEST_PAUSE_MS, 2 * (operation.pauseMs ?? 0.5));
    this.#paused.set(key, [[statement, operation]]);
    const goOn = () => {
      const paused = this.#paused.get(key)!;
      this.#paused.delete(key);
      for (const each of paused) this.#add(...each);
    };
    outsideOfCalls(() => setTimeout(goOn, operation.pauseMs)).unref();
  }

  /** Queues the operations of a command behind paused operations with the same keys. */
  #holdBack(command: StatementCommand): void {
    for (const operation of command.without(this.#paused)) {
      operation.skippedAt ??= performance.now();
      this.#paused.get(operation.key)!.push([command.statement, operation]);
    }
  }

  /** Fails operations that were never sent. It does so asynchronously, because their callers may not have returned yet. */
  #drop(operations: readonly KeyedOperation[], fault: SqlFault): void {
    if (operations.length === 0) return;
    void Promise.resolve().then(() => {
      for (const operation of operations) deliver(operation, fault, this.now());
    });
  }
}

/** Returns the row of each operation; undefined if the statement returned none for its key. */
function byKey(operations: readonly KeyedOperation[], rows: readonly Row[]): (Row | undefined)[] {
  const found = new Map(rows.map((row) => [row.key, row]));
  return operations.map(({ values }) => found.get(values[0]));
}

/** Answers one operation. If its callback throws, the other operations of the statement still get their answers. */
function deliver({ done }: KeyedOperation, answer: Row | SqlFault, sentAt: number): void {
  try {
    done(answer, sentAt);
  } catch (bug) {
    void Promise.reject(bug);
  }
}
