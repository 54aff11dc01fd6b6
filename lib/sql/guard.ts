import { LockLostError, LockOptionsError } from '../api/errors.js';
import type { Lock, LockSet } from '../api/lock.js';
import { inWords, quoted } from '../api/printable.js';
import type { GuardStatement } from '../core/backend/lock-backend.js';
import { LockHandle } from '../core/locks/lock-handle.js';
import { LockSetHandle } from '../core/locks/lock-set-handle.js';
import { described, invalidOption } from '../core/options/checks.js';
import { yieldToEventLoop } from '../core/time/event-loop.js';
import { IN_TRANSACTION as IN_MYSQL, NOT_GUARDED as BY_MYSQL } from '../stores/sql/mysql/statements.js';
import {
  ABORT,
  ageCheck,
  IN_TRANSACTION as IN_POSTGRES,
  NOT_GUARDED as BY_POSTGRES,
  READ_TOO_EARLY,
} from '../stores/sql/postgres/statements.js';

/** Runs a statement in the transaction of the work: `(text, values) => tx.query(text, values)`. The library ignores its result. */
export type TransactionQuery = (text: string, values: GuardStatement['values']) => PromiseLike<unknown>;

/** A transaction with `query`: a client of `pg`, an `EntityManager` or `QueryRunner` of TypeORM, or a transaction of PGlite. */
export interface Transaction {
  query(text: string, values: GuardStatement['values']): PromiseLike<unknown>;
}

/**
 * Protects a lock, or all locks of a set, by the transaction of the work. Even if a clock, this process or its network fails, no other
 * call can get the lock before the transaction ends. So the writes of the transaction are exclusive. Call it in the outermost
 * transaction: last, just before the commit, or first, if a late refusal would be costly. Release the lock after the commit.
 * @param lock a lock of a `SqlLockModule` whose table is in the database of the transaction
 * @throws LockLostError if the lock is no longer held. Then roll the transaction back: PostgreSQL allows nothing else, but MySQL would
 *   commit it
 * @throws LockOptionsError for a lock that is not in a table, or if no transaction is open
 * @throws the error of the driver, or an error with its code: `40001` of PostgreSQL if the transaction read before the lock was granted
 */
export async function guard(lock: Lock | LockSet, transaction: Transaction | TransactionQuery): Promise<void> {
  let handles: readonly LockHandle[] = [];
  try {
    handles = handlesOf(lock);
    const { dialect, text, values } = statementOf(handles, Infinity);
    const query = queryOf(transaction);
    const lost = handles.find(({ isHeld }) => !isHeld);
    // The transaction must not commit even if the work ignores the error. MySQL has no statement for that.
    if (lost && dialect === 'postgres') await aborted(query);
    lost?.assertHeld();
    if (dialect === 'testing') return;
    for (const check of dialect === 'mysql' ? IN_MYSQL : [IN_POSTGRES]) await promised(query(check, []));
    const passedOnForMs = LockHandle.passedOnForMs(handles);
    if (dialect === 'postgres' && passedOnForMs < Infinity) await promised(query(ageCheck(passedOnForMs), []));
    await promised(query(text, values));
  } catch (error) {
    await yieldToEventLoop(); // so that a loop that retries at once does not block the event loop
    throw refusalOf(handles, error);
  }
}

/**
 * Returns the statement of `guard`, for drivers with another interface. Run it in the transaction of the work. Run it at once: in
 * PostgreSQL it may contain the time since the lock was passed on. The statement fails if a lock is no longer held. Then roll the
 * transaction back, and also if this function throws. Outside of a transaction it guards nothing.
 * @returns SQL with the placeholders `$1`, `$2`, … of PostgreSQL, or `?` of MySQL, each once and in order; the values are strings and
 *   numbers. Its `dialect` is `postgres` or `mysql`, or `testing` for locks of a `LockBench`, which are in no database
 * @throws LockLostError, LockOptionsError
 */
export function guardStatement(lock: Lock | LockSet): GuardStatement {
  const handles = handlesOf(lock);
  for (const handle of handles) handle.assertHeld();
  return statementOf(handles, LockHandle.passedOnForMs(handles));
}

/** @throws LockOptionsError */
function statementOf(handles: readonly LockHandle[], passedOnForMs: number): GuardStatement {
  const statement = LockHandle.guard(handles, passedOnForMs);
  if (statement) return statement;
  const keys = inWords(handles.map(({ key }) => quoted(key)));
  throw new LockOptionsError(
    `A guard needs locks of SqlLockModule, which are in a table of the database: got ${keys}, which another store keeps. ` +
      'Check the fencing token in the write instead: see fencedUpdate.',
  );
}

const CALLBACK_HINT =
  'A mysql2 connection with callbacks has a query() that returns no promise: pass connection.promise(), or a connection of mysql2/promise.';

/** A transaction of TypeORM: a QueryRunner, or a manager that has one. */
interface Nestable {
  readonly transactionDepth?: number;
  readonly queryRunner?: Nestable;
}

/** @throws LockOptionsError */
function queryOf(transaction: Transaction | TransactionQuery): TransactionQuery {
  if (typeof transaction === 'function') return transaction;
  const { queryRunner, transactionDepth = queryRunner?.transactionDepth ?? 0 } = (transaction ?? {}) as Nestable;
  if (transactionDepth > 1)
    throw new LockOptionsError(
      'guard() was called in a nested transaction, which is a savepoint: if that is rolled back, nothing guards the lock any more. ' +
        'Call it in the outermost transaction, when the nested one has ended.',
    );
  if (typeof (transaction as { promise?: unknown } | null)?.promise === 'function')
    throw new LockOptionsError(`transaction must have a query() that returns a promise. ${CALLBACK_HINT}`);
  if (typeof (transaction as Partial<Transaction> | null)?.query === 'function')
    return (text, values) => transaction.query(text, values);
  throw invalidOption(
    'transaction',
    transaction,
    'a function like (text, values) => tx.query(text, values), or have query',
  );
}

async function aborted(query: TransactionQuery): Promise<void> {
  try {
    await promised(query(ABORT, []));
  } catch {
    // Expected. If the statement could not be sent, the connection is gone, and so is the transaction.
  }
}

/** Checks that an answer is a promise: otherwise nobody would wait for it or see its error. @throws LockOptionsError */
function promised(answer: PromiseLike<unknown>): PromiseLike<unknown> {
  const given = answer as { then?: unknown; onResult?: unknown } | undefined | null;
  // The queries of mysql2 with callbacks have a `then` that throws.
  if (typeof given?.then === 'function' && !('onResult' in given)) return answer;
  throw new LockOptionsError(
    `The function that runs the statement of a guard must return a promise: got ${described(answer)}. Roll the transaction back. ${CALLBACK_HINT}`,
  );
}

function handlesOf(lock: unknown): readonly LockHandle[] {
  if (lock instanceof LockHandle) return [lock];
  if (lock instanceof LockSetHandle) return lock.locks;
  throw invalidOption('lock', lock, 'a lock, or a set of locks, that a LockService granted');
}

const SERIALIZATION_FAILURE = '40001';
const OUTDATED =
  'could not serialize access: the transaction began before its call had the lock, and may have read old data. ' +
  'Roll it back, and begin it again under the lock.';

/** The codes of the databases for the error of `guard` outside of a transaction. */
const OUTSIDE = new Set<unknown>(['25P01', 'ER_SP_DOES_NOT_EXIST']);

/** Turns the error of a driver, which may be wrapped, into an error about the lock. */
function refusalOf(handles: readonly LockHandle[], error: unknown): unknown {
  for (let cause = error, depth = 0; cause instanceof Error && depth < 8; cause = cause.cause, depth++) {
    const { number, stolen } = (BY_POSTGRES.exec(cause.message) ?? BY_MYSQL.exec(cause.message))?.groups ?? {};
    const lock = handles[Number(number) - 1];
    if (cause.message.includes(READ_TOO_EARLY))
      return Object.assign(new Error(OUTDATED, { cause: error }), { code: SERIALIZATION_FAILURE });
    if (lock) return new LockLostError(lock.key, stolen === undefined ? 'expired' : 'stolen', undefined, error);
    if (OUTSIDE.has((cause as { code?: unknown }).code))
      return new LockOptionsError(
        'guard() was called outside of a transaction, where it would guard nothing. Begin one, and pass its client or manager, not a pool.',
        { cause: error },
      );
  }
  return error;
}
