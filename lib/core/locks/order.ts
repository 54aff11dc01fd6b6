import type { Share } from './lease.js';

/** What decides whether a grant is passed on. */
export type Passing = Pick<Share, 'nobodyBefore' | 'until'>;

/** Who is served first, of the calls of all processes. */
export interface Order {
  /** Whether all calls are served in the order of their arrival: none takes a free lock that another one waits for. */
  readonly isByArrival: boolean;
  /** Whether a call of this process may be served before all that wait elsewhere. @param arrivedAt by the monotonic clock */
  mayServe(passing: Passing, arrivedAt: number, now: number): boolean;
  /**
   * When the place of this process in the queue of the store counts as taken, by the monotonic clock.
   * @param firstArrivedAt when its first call came
   * @param takenAt when the place was first asked for
   */
  placeAt(firstArrivedAt: number, takenAt: number): number;
}

/** The processes take turns: each passes the lock on for a while, and is last in the queue then. */
export const ROUND_ROBIN: Order = {
  isByArrival: false,
  mayServe: ({ until }, _, now) => now < until,
  placeAt: (_, takenAt) => takenAt,
};

/**
 * By how much a call may be served before one that came earlier to another process, in milliseconds. It is of the size of the error of the
 * clocks, and calls that come at nearly the same time are served in batches, which is several times as fast.
 */
const SLACK_MS = 1;

/** The calls of all processes are served in the order of their arrival. */
export const BY_ARRIVAL: Order = {
  isByArrival: true,
  mayServe: ({ nobodyBefore = -Infinity, until }, arrivedAt, now) =>
    arrivedAt <= nobodyBefore || (arrivedAt <= nobodyBefore + SLACK_MS && now < until),
  placeAt: (firstArrivedAt) => firstArrivedAt,
};
