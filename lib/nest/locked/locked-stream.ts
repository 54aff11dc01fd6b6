import { Observable, Subject, takeUntil } from 'rxjs';
import type { InterceptedCall } from './intercepted-call.js';

/** Acquires the lock, runs the work under it and releases it. If the call is refused, it may call `instead` with a value. */
type Hold<T> = (
  signal: AbortSignal,
  work: () => Promise<T | undefined>,
  instead: (value: T) => void,
) => Promise<unknown>;

/**
 * Makes an Observable that acquires a lock at the subscription and releases it at its end.
 *
 * @param open makes the stream, under the lock
 * @param call the request that the stream belongs to, if any. The lock is then held until the handler has settled, even after an
 *   unsubscribe, and the value of a promise is emitted only after the release
 */
export function lockedStream<T>(hold: Hold<T>, open: () => Observable<T>, call?: InterceptedCall): Observable<T> {
  return new Observable<T>((subscriber) => {
    const acquiring = new AbortController();
    const stopped = new Subject<void>();
    const values: T[] = [];

    const flush = () => {
      for (const value of values.splice(0)) subscriber.next(value);
    };
    const passOn = () => {
      flush();
      subscriber.complete();
    };
    const next = (value: T) => {
      values.push(value);
      if (!call || call.isStream) flush();
    };
    const work = () =>
      new Promise<T | undefined>((resolve, reject) => {
        if (subscriber.closed) return resolve(undefined); // unsubscribed while the lock was granted
        const end = (conclude: () => void, notify: () => void) => {
          const running = call?.end();
          if (!running) return conclude();
          notify(); // after a timeout, only the lock waits for the handler, not the subscriber
          void running.then(conclude);
        };
        open()
          .pipe(takeUntil(stopped))
          .subscribe({
            next,
            error: (error: unknown) =>
              end(
                () => reject(error),
                () => subscriber.error(error),
              ),
            complete: () => end(() => resolve(values.at(-1)), passOn),
          });
      });

    hold(acquiring.signal, work, (value) => values.push(value)).then(passOn, (error: unknown) =>
      subscriber.error(error),
    );
    return () => {
      acquiring.abort();
      void call?.end();
      // With a promise, interceptors inside, such as a transaction, end together with the handler.
      if (!call || call.isStream) stopped.next();
    };
  });
}
