import { describe, expect, it } from 'vitest';
import { FAULT_KINDS, planFaults, TOPOLOGIES, type FaultKind, type TopologyId } from './schedule.js';

const OF_DATABASES: FaultKind[] = ['silence', 'terminate', 'only-read'];
const OF_REDIS: FaultKind[] = [
  'restart-empty',
  'restart-old',
  'swap-primary',
  'flush',
  'flush-cohort',
  'forget-scripts',
];

describe('the schedule of the nemesis', () => {
  it('has every kind of fault in two minutes that a topology can have, on each topology [G741]', () => {
    const others: Record<TopologyId, FaultKind[]> = {
      single: OF_DATABASES,
      'redlock-3': ['swap-primary', ...OF_DATABASES],
      'redlock-5': ['swap-primary', ...OF_DATABASES],
      postgres: OF_REDIS,
      mariadb: [...OF_REDIS, 'half-open'],
    };
    for (const id of Object.keys(TOPOLOGIES) as TopologyId[]) {
      const kinds = new Set(planFaults(1, 120_000, { topology: TOPOLOGIES[id], workers: 4 }).map(({ kind }) => kind));
      const expected = FAULT_KINDS.filter((kind) => !others[id].includes(kind));
      expect([...kinds].sort()).toEqual([...expected].sort());
    }
  });
});
