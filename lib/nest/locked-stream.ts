import { Observable, type Subscription } from 'rxjs';
import type { InterceptedCall } from './intercepted-call.js';

/**
 * An Observable that runs under a lock: acquired at the subscription, given back when the stream has ended.
 *
 * @param hold takes the lock, does the work under it, gives it back; or resolves with a value instead of the work
 * @param open makes the stream, under the lock
 * @param call the handler's call, when the stream stands for one: the lock is then held until the handler has settled,
 *   even if nobody listens any more
 */
export function lockedStream<T>(
  hold: (signal: AbortSignal, work: () => Promise<undefined>) => Promise<{ instead: T } | undefined>,
  open: () => Observable<T>,
  call?: InterceptedCall,
): Observable<T> {
  return new Observable<T>((subscriber) => {
    const acquiring = new AbortController();
    let source: Subscription | undefined;
    let finish: (() => void) | undefined;

    const work = () =>
      new Promise<undefined>((resolve, reject) => {
        const end = (conclude: () => void, tell: () => void) => {
          const running = call?.stillRunning;
          if (!running) return conclude();
          tell(); // who listens need not wait for a handler that a timeout left behind; the lock has to
          void running.then(conclude);
        };
        finish = () => resolve(undefined);
        source = open().subscribe({
          next: (value) => subscriber.next(value),
          error: (error: unknown) =>
            end(
              () => reject(error),
              () => subscriber.error(error),
            ),
          complete: () =>
            end(
              () => resolve(undefined),
              () => subscriber.complete(),
            ),
        });
        if (subscriber.closed) stop();
      }).finally(() => call?.end());

    const stop = () => {
      if (call && !call.canBeStopped) {
        call.abandoned = true;
        return;
      }
      source?.unsubscribe();
      finish?.();
    };

    hold(acquiring.signal, work).then(
      (outcome) => {
        if (outcome) subscriber.next(outcome.instead);
        subscriber.complete();
      },
      (error: unknown) => subscriber.error(error),
    );
    return () => {
      acquiring.abort();
      stop();
    };
  });
}
