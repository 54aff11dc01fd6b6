import { AsyncLocalStorage } from 'node:async_hooks';
import { EMPTY, isObservable } from 'rxjs';
import { LockOptionsError } from '../errors.js';
import type { LockedPlan } from './locked-plan.js';

const running = new AsyncLocalStorage<InterceptedCall>();

/**
 * One call of a handler whose lock `LockedInterceptor` took: the word that passes from the interceptor to the wrapped
 * method, so that exactly one of them takes it, and back, so that it is held for as long as the handler runs.
 */
export class InterceptedCall {
  #state: 'expected' | 'called' | 'over' = 'expected';
  #settled: Promise<void> | undefined;
  #returnedStream = false;
  /** Nobody listens any more. */
  abandoned = false;

  constructor(readonly plan: LockedPlan) {}

  /** The call of this plan that is expected in this async context, if there is one. */
  static expected(plan: LockedPlan): InterceptedCall | undefined {
    const call = running.getStore();
    return call?.plan === plan && call.#state !== 'called' ? call : undefined;
  }

  run<T>(work: () => T): T {
    return running.run(this, work);
  }

  /** Calls the handler. @throws LockOptionsError when the lock was given back before */
  enter(handler: () => unknown): unknown {
    if (this.#state === 'over') {
      throw new LockOptionsError(
        `${this.plan.name} was called after its request was over and its lock given back: it did not run.`,
      );
    }
    this.#state = 'called';
    const result = handler();
    if (isObservable(result)) {
      this.#returnedStream = true;
      return this.abandoned ? EMPTY : result;
    }
    if (!isThenable(result)) throw notAsync(this.plan);
    const settle = () => {
      this.#settled = undefined;
    };
    this.#settled = Promise.resolve(result).then(settle, settle);
    return result;
  }

  /** Whether an unsubscription ends the handler: a stream ends, a promise runs on, and so may what comes before it. */
  get canBeStopped(): boolean {
    return this.#returnedStream;
  }

  /** The promise of the handler, while it runs. */
  get stillRunning(): Promise<void> | undefined {
    return this.#settled;
  }

  /** The lock is given back. */
  end(): void {
    if (this.#state === 'expected') this.#state = 'over';
  }
}

export function isThenable(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined)?.then === 'function';
}

export function notAsync({ name }: LockedPlan): LockOptionsError {
  return new LockOptionsError(
    `${name} is @Locked and must return a Promise or an Observable: got a plain value. Make it async.`,
  );
}
