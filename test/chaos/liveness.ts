/** A turn that got a lock which all workers want. */
export interface Turn {
  worker: number;
  askedAt: number;
  grantedAt: number;
}

/**
 * The workers that were never served after a wait. A worker that found the lock free has not shown that it still gets
 * notified: it counts only if another one was served between its request and its grant.
 */
export function shutOut(workers: readonly number[], turns: readonly Turn[]): number[] {
  const wasServed = (worker: number) =>
    turns.some(
      (turn) =>
        turn.worker === worker &&
        turns.some(
          (other) => other.worker !== worker && other.grantedAt > turn.askedAt && other.grantedAt < turn.grantedAt,
        ),
    );
  return workers.filter((worker) => !wasServed(worker));
}
