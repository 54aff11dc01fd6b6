import type { Cohort } from './lease.js';

/** The facts that decide whether a grant is passed on. */
export type Passing = Pick<Cohort, 'nobodyBefore' | 'until'>;

/** The order in which the calls of all processes are served. */
export interface Order {
  /** Whether all calls are served in the order of their arrival: no call takes a free lock that another call waits for. */
  readonly isByArrival: boolean;
  /** Whether a call of this process may be served before the calls of other processes. @param arrivedAt by the monotonic clock */
  mayServe(passing: Passing, arrivedAt: number, now: number): boolean;
  /**
   * When the place of this process in the queue of the store counts as taken, by the monotonic clock.
   * @param firstArrivedAt when its first call arrived
   * @param takenAt when an attempt first asked for the place
   */
  placeAt(firstArrivedAt: number, takenAt: number): number;
}

/** The processes take turns: each passes the lock on for a while, and is then the last in the queue. */
export const ROUND_ROBIN: Order = {
  isByArrival: false,
  mayServe: ({ until }, _, now) => now < until,
  placeAt: (_, takenAt) => takenAt,
};

/**
 * A call may be served before a call of another process that came at most this much earlier, in milliseconds. The clocks are not more precise.
 * So calls that arrive at nearly the same time are served in batches, which is several times as fast.
 */
const SLACK_MS = 1;

/** The calls of all processes are served in the order of their arrival. */
export const BY_ARRIVAL: Order = {
  isByArrival: true,
  mayServe: ({ nobodyBefore = -Infinity, until }, arrivedAt, now) =>
    arrivedAt <= nobodyBefore || (arrivedAt <= nobodyBefore + SLACK_MS && now < until),
  placeAt: (firstArrivedAt) => firstArrivedAt,
};
