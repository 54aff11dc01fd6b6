import { LockOptionsError } from '../../api/errors.js';
import type { LeaseOptions } from '../../api/options.js';
import { printable, quoted } from '../../api/printable.js';
import { splitScope } from '../keys/scope.js';
import { described } from '../options/checks.js';
import type { AskingMethod } from './lock-order.js';

/** Maximum number of subjects that it remembers as already warned about: keys are unbounded, memory is not. */
const MAX_REMEMBERED = 100;

/** Finds locks that calls take inside a database transaction: such a lock is released before the commit. */
export class TransactionCheck {
  readonly #warned = new Set<string>();
  #failed = false;

  constructor(
    private readonly insideTransaction: () => boolean,
    private readonly warn: (key: string, message: string) => void,
  ) {}

  /**
   * Called in the async context of the call, before it requests the lock.
   * @param method the decorated method that requests the lock
   * @throws LockOptionsError with `onTransaction: 'refuse'`
   */
  check(key: string, onTransaction: LeaseOptions['onTransaction'], method: AskingMethod | undefined): void {
    if (onTransaction === 'allow' || !this.#isInside(key)) return;
    const what = method ? `${method.name} takes the lock ${quoted(key)}` : `The lock ${quoted(key)} is taken`;
    const { decorator = '@Locked' } = method ?? {};
    const message =
      `${what} inside a transaction: the lock is released before the commit, and its next holder may read ` +
      `stale data. Put ${decorator} above @Transactional, or take the lock before the transaction begins; see ` +
      'docs/transactions.md.';
    if (onTransaction === 'refuse') throw new LockOptionsError(message);
    const subject = method?.name ?? splitScope(key).rest.split(':', 1)[0]!;
    if (this.#warned.has(subject) || (method === undefined && this.#warned.size >= MAX_REMEMBERED)) return;
    this.#warned.add(subject);
    this.warn(key, message);
  }

  /** Asks the application. If that fails, the call continues: it may not use a database at all. */
  #isInside(key: string): boolean {
    try {
      const answer: unknown = this.insideTransaction();
      if (typeof answer === 'boolean') return answer;
      // The promise is ignored, but its rejection must not end the process.
      if (answer instanceof Promise) answer.catch(() => {});
      throw new TypeError(`it must return true or false: got ${described(answer)}`);
    } catch (error) {
      if (!this.#failed) {
        this.#failed = true;
        const problem = error instanceof Error ? error.message : String(error);
        this.warn(
          key,
          `insideTransaction failed, so it is unknown whether locks are taken inside transactions: ${printable(problem.replace(/\.$/, ''))}.`,
        );
      }
      return false;
    }
  }
}
