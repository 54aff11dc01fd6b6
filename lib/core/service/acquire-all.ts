import { LockContendedError } from '../../api/errors.js';
import type { LockHandle } from '../locks/lock-handle.js';
import { lostBefore } from '../locks/refusals.js';
import type { WaitRequest } from '../locks/waiter.js';

const TRY_AGAIN = 'Try again; without the watchdog, ttlMs must be longer than waitMs.';

/**
 * Acquires the locks of all keys, or none. It tries all keys at once, keeps the locks before the first refusal, and releases the others. Then it
 * waits for the refused lock, and tries the rest in the same way. All calls use the same order of keys, so no two of them wait for each other.
 * Each wait is a place in a queue, so no call waits forever.
 * @param keys each once, in order
 * @param request without `waitMs`, the first refusal ends the call
 * @param since when the call began, by the clock of the service
 * @param acquire acquires one of the locks
 * @throws the refusal that ended it, the reason of the signal, or LockUnavailableError for a lock that was lost before all were acquired. All
 *   acquired locks are then released
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
      const { granted, refusal } = await tryAll(rest, (key) => acquire(key, attempt));
      held.push(...granted);
      if (refusal === undefined) break;
      if (waitMs === 0 || !(refusal instanceof LockContendedError)) throw refusal;
      held.push(await acquire(keys[held.length]!, { ...request, since }));
      attempt = { ...request, since, isProbe: true };
    }
    signal?.throwIfAborted(); // nested calls do not check it
    // The first locks may have ended while the call waited for later ones.
    const lost = held.find(({ lease }) => !lease.checkAlive());
    if (lost) throw lostBefore('all locks of the call were acquired', lost.lease, 'acquired', TRY_AGAIN);
    return held;
  } catch (error) {
    for (const lock of held) void lock.release(); // at once: this call has ended
    throw error;
  }
}

/**
 * Tries all keys at once, and releases the locks that were granted after the first refusal.
 * @returns the refusal: contention only if there is no other refusal
 */
async function tryAll(
  keys: readonly string[],
  acquire: (key: string) => Promise<LockHandle>,
): Promise<{ granted: LockHandle[]; refusal?: Error }> {
  // Async, so that a call that throws does not hide the grants of the others.
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
