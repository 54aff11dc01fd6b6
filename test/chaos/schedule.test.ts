import { describe, expect, it } from 'vitest';
import { FAULT_KINDS, type FaultKind } from './history.js';
import { planFaults } from './schedule.js';
import { TOPOLOGIES, TOPOLOGY_IDS, type TopologyId } from './topologies.js';

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
    for (const id of TOPOLOGY_IDS) {
      const kinds = new Set(planFaults(1, 120_000, { topology: TOPOLOGIES[id], workers: 4 }).map(({ kind }) => kind));
      const expected = FAULT_KINDS.filter((kind) => !others[id].includes(kind));
      expect([...kinds].sort()).toEqual([...expected].sort());
    }
  });

  it('lets nodes lag behind before one restarts with old data, and then hides the others', () => {
    for (const id of ['redlock-3', 'redlock-5'] as const) {
      const { nodes } = TOPOLOGIES[id];
      const faults = planFaults(1, 120_000, { topology: TOPOLOGIES[id], workers: 4 });
      const among = faults
        .filter(({ kind }) => kind === 'restart-old')
        .map((restart) => ({
          before: faults.filter(
            ({ kind, atMs, forMs }) => kind === 'isolate' && forMs === restart.byMs && atMs + forMs === restart.atMs,
          ),
          after: faults.filter(({ kind, atMs, forMs }) => kind === 'isolate' && atMs === restart.atMs && forMs > 4_000),
          restart,
        }))
        .filter(({ before }) => before.length > 0);
      expect(among.length).toBeGreaterThan(0);
      for (const { before, after, restart } of among) {
        const hidden = [...before, ...after].map(({ node }) => node);
        expect(before).toHaveLength((nodes - 1) / 2);
        expect([...hidden, restart.node].sort()).toEqual(Array.from({ length: nodes }, (_, node) => node));
      }
    }
  });
});
