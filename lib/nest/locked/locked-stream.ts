import { Observable, Subject, takeUntil } from 'rxjs';
import type { InterceptedCall } from './intercepted-call.js';

/** Acquires the lock, runs the work under it and releases it; or, if refused, may call `instead` with a value. */
type Hold<T> = (
  signal: AbortSignal,
  work: () => Promise<T | undefined>,
  instead: (value: T) => void,
) => Promise<unknown>;

/**
 * An Observable that runs under a lock: acquired at the subscription, released when the stream has ended.
 *
 * @param open makes the stream, under the lock
 * @param call the request, when the stream stands for one: the lock is then held until the handler has settled, even after
 *   an unsubscribe, and the value of a promise is passed on only once the lock was released
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
        if (subscriber.closed) return resolve(undefined); // unsubscribed as the lock was granted
        const end = (conclude: () => void, notify: () => void) => {
          const running = call?.end();
          if (!running) return conclude();
          notify(); // the subscriber need not wait for a handler that a timeout left behind; the lock has to
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
      // Interceptors between here and a promise, like a transaction, are left to end with it.
      if (!call || call.isStream) stopped.next();
    };
  });
}
