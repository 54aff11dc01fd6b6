import { LockContendedError } from '../../api/errors.js';
import type { LockHandle } from '../locks/lock-handle.js';
import { lostBefore } from '../locks/refusals.js';
import type { WaitRequest } from '../locks/waiter.js';

const TRY_AGAIN = 'Try again; without the watchdog, ttlMs must be longer than waitMs.';

/**
 * Acquires the locks of all keys, or none. All that are free are acquired at once; from the first that is not, the others are
 * given back, that one is waited for in its queue, and then the rest are asked for as before. As all calls go by one order,
 * none waits for a lock whose holder waits for it, and as each wait is a place in a queue, none waits for ever.
 * @param keys each once, in order
 * @param request of the call; without `waitMs` the first refusal ends it
 * @param since when the call began, by the clock
 * @param acquire acquires one of the locks
 * @throws the refusal that ended it, the reason of the signal, or LockUnavailableError for a lock that was lost before all were
 *   acquired: what was acquired by then is released
 */
export async function acquireAll<Request extends WaitRequest>(
  keys: readonly string[],
  request: Request,
  since: number,
  acquire: (key: string, request: Request) => Promise<LockHandle>,
): Promise<LockHandle[]> {
  const { waitMs, signal } = request;
  const held: LockHandle[] = [];
  try {
    signal?.throwIfAborted();
    let attempt = waitMs > 0 ? { ...request, isProbe: true } : request;
    for (let rest = keys; rest.length > 0; rest = keys.slice(held.length)) {
      const { granted, refusal } = await tried(rest, (key) => acquire(key, attempt));
      held.push(...granted);
      if (refusal === undefined) break;
      if (waitMs === 0 || !(refusal instanceof LockContendedError)) throw refusal;
      held.push(await acquire(keys[held.length]!, { ...request, since }));
      attempt = { ...request, since, isProbe: true };
    }
    signal?.throwIfAborted(); // a lock that the call held before was granted without looking at it
    // A set is complete only while all of it is held: the first locks may have ended while later ones were waited for.
    const lost = held.find(({ lease }) => !lease.checkAlive());
    if (lost) throw lostBefore('all locks of the call were acquired', lost.lease, 'acquired', TRY_AGAIN);
    return held;
  } catch (error) {
    for (const lock of held) void lock.release(); // at once, so that none of them goes on when this call has ended
    throw error;
  }
}

/**
 * Tries all keys at once, and gives back what was granted behind the first refusal.
 * @returns the refusal: any other than that a lock is held by others comes first
 */
async function tried(
  keys: readonly string[],
  acquire: (key: string) => Promise<LockHandle>,
): Promise<{ granted: LockHandle[]; refusal?: Error }> {
  // Async: one that throws at once must not hide what the others are granted.
  const attempts = await Promise.allSettled(keys.map(async (key) => acquire(key)));
  const refusals = attempts.flatMap((attempt) => (attempt.status === 'rejected' ? [attempt.reason as Error] : []));
  const refusal = refusals.find((reason) => !(reason instanceof LockContendedError)) ?? refusals[0];
  const granted: LockHandle[] = [];
  let isBehind = false;
  for (const attempt of attempts) {
    if (attempt.status === 'rejected') isBehind = true;
    else if (isBehind)
      void attempt.value.release(); // sent before this call asks again
    else granted.push(attempt.value);
  }
  return { granted, refusal };
}
