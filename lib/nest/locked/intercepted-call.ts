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
 * One request whose lock `LockedInterceptor` acquired. It tells the wrapped method that it need not acquire the lock, and the
 * interceptor how long the handler runs, so that the lock is held until then.
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

  /** The request that this code runs for, between its `LockedInterceptor` and its handler. */
  static current(): InterceptedCall | undefined {
    return inside.getStore();
  }

  /** Runs everything between the interceptor and the handler. */
  run<T>(work: () => T): T {
    return inside.run(this, work);
  }

  /**
   * Calls the handler; an interceptor inside may do so more than once.
   * @throws LockOptionsError when the request is over, and the lock is or will be released
   */
  enter(run: () => unknown): unknown {
    if (this.#isOver) {
      throw new LockOptionsError(
        `${this.handler.name} was called after its request had ended: it did not run, since its lock had been released.`,
      );
    }
    const result = outside(run);
    if (isObservable(result)) return this.#stream(result);
    // Only the settled result is passed on: a lazy thenable, like a query, must not be started twice.
    const running = this.#settled(result);
    this.#running.add(running);
    const forget = () => this.#running.delete(running);
    running.then(forget, forget);
    return running;
  }

  /** Whether the handler returned a stream, which emits while it runs, and ends when it is unsubscribed. */
  get isStream(): boolean {
    return this.#isStream;
  }

  /**
   * Ends the request, as its response is complete or was abandoned: the handler cannot be called from now on. The caller ends
   * a stream; a promise runs on.
   * @returns settles with the handler, if one still runs
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

/** Runs a handler outside of the request: should it call another handler, that needs a lock of its own. */
function outside<T>(work: () => T): T {
  return inside.run(undefined, work);
}
