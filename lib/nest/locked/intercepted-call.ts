import { AsyncLocalStorage } from 'node:async_hooks';
import type { ExecutionContext } from '@nestjs/common';
import { EMPTY, isObservable, Observable } from 'rxjs';
import { LockOptionsError } from '../../api/errors.js';

/** A locked method, for messages. */
interface Named {
  readonly name: string;
}

const inside = new AsyncLocalStorage<InterceptedCall | undefined>();

/**
 * One request whose lock `LockedInterceptor` has acquired. The wrapped method sees that it need not acquire the lock. The interceptor
 * sees when the handler has ended, and then releases the lock.
 */
export class InterceptedCall {
  readonly #running = new Set<Promise<unknown>>();
  #isOver = false;
  #isStream = false;

  constructor(
    /** The locked method that is the handler. */
    readonly handler: Named,
    readonly context: ExecutionContext,
  ) {}

  /** Returns the request of the running code, between its `LockedInterceptor` and its handler. */
  static current(): InterceptedCall | undefined {
    return inside.getStore();
  }

  /** Runs everything between the interceptor and the handler. */
  run<T>(work: () => T): T {
    return inside.run(this, work);
  }

  /**
   * Calls the handler; an interceptor inside may do so more than once.
   * @throws LockOptionsError if the request has ended, since its lock is released then
   */
  enter(run: () => unknown): unknown {
    if (this.#isOver) {
      throw new LockOptionsError(
        `${this.handler.name} was called after its request had ended: it did not run, since its lock had been released.`,
      );
    }
    const result = outside(run);
    if (isObservable(result)) return this.#stream(result);
    // Passes on the settled result only: a lazy thenable, such as a query, must not start twice.
    const running = this.#settled(result);
    this.#running.add(running);
    const forget = () => this.#running.delete(running);
    running.then(forget, forget);
    return running;
  }

  /** Whether the handler returned a stream. */
  get isStream(): boolean {
    return this.#isStream;
  }

  /**
   * Ends the request, because its response is complete or abandoned: from now on the handler cannot be called. The caller ends a
   * stream; a promise runs on.
   * @returns a promise that settles with the handler, if it still runs
   */
  end(): Promise<unknown> | undefined {
    this.#isOver = true;
    return this.#running.size > 0 ? Promise.allSettled(this.#running) : undefined;
  }

  async #settled(result: unknown): Promise<unknown> {
    const value = await result;
    if (!isObservable(value)) return value;
    return this.#isOver ? EMPTY : this.#stream(value);
  }

  #stream(source: Observable<unknown>): Observable<unknown> {
    this.#isStream = true;
    return new Observable((subscriber) => outside(() => source.subscribe(subscriber)));
  }
}

/** Runs a handler outside of the request: if it calls another handler, that one needs its own lock. */
function outside<T>(work: () => T): T {
  return inside.run(undefined, work);
}
