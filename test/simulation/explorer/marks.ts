import { TOPOLOGIES, type Topology } from './plan.js';

const ALL = Object.keys(TOPOLOGIES) as Topology[];

/**
 * States of the library that runs must reach, since otherwise they would prove nothing about them; and the servers on
 * which they exist.
 */
export const MARKS = {
  'hand-over': ['one'],
  'lost message': ALL,
  'unknown lease': ['one'],
  're-admission': ['redlock-3', 'redlock-5'],
  batch: ALL,
  cohort: ALL,
  'kept lock': ALL,
  election: ALL,
  set: ALL,
  'release not awaited': ALL,
  'lost lease': ALL,
  'taken by force': ALL,
  abort: ALL,
  adopted: ['one', 'sentinel', 'cluster'],
  readers: ['one', 'sentinel', 'cluster'],
  downgraded: ['one', 'sentinel', 'cluster'],
  permits: ['one', 'sentinel', 'cluster'],
  overstayed: ['one', 'sentinel', 'cluster'],
  failover: ['sentinel', 'cluster'],
  'moved slot': ['cluster'],
} as const satisfies Record<string, readonly Topology[]>;
export type Mark = keyof typeof MARKS;

/** How often each state was reached. */
export type Marks = Map<Mark, number>;

export function reach(marks: Marks, mark: Mark, times = 1): void {
  if (times > 0) marks.set(mark, (marks.get(mark) ?? 0) + times);
}

/** The states that exist on some of these topologies, and were never reached. */
export function missing(marks: Marks, topologies: readonly Topology[]): Mark[] {
  return (Object.keys(MARKS) as Mark[]).filter(
    (mark) =>
      !marks.has(mark) && topologies.some((topology) => (MARKS[mark] as readonly Topology[]).includes(topology)),
  );
}
