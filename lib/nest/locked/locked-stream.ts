import { Observable, Subject, takeUntil } from 'rxjs';
import type { InterceptedCall } from './intercepted-call.js';

/** Takes the lock, does the work under it and gives it back; or tells which value stands for the work. */
type Hold<T> = (
  signal: AbortSignal,
  work: () => Promise<T | undefined>,
  instead: (value: T) => void,
) => Promise<unknown>;

/**
 * An Observable that runs under a lock: acquired at the subscription, given back when the stream has ended.
 *
 * @param open makes the stream, under the lock
 * @param call the request, when the stream stands for one: the lock is then held until the handler has settled, even if
 *   nobody listens any more, and the value of a promise is passed on when the lock was given back
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
        const end = (conclude: () => void, tell: () => void) => {
          const running = call?.end();
          if (!running) return conclude();
          tell(); // who listens need not wait for a handler that a timeout left behind; the lock has to
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
      // What stands between a promise and us, like a transaction, is left to end with it.
      if (!call || call.isStream) stopped.next();
    };
  });
}
