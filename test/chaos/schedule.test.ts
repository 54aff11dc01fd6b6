import { describe, expect, it } from 'vitest';
import { FAULT_KINDS } from './history.js';
import { planFaults } from './schedule.js';

describe('the schedule of the nemesis', () => {
  it('has every kind of fault in a minute, on each topology', () => {
    for (const nodes of [1, 3, 5]) {
      const kinds = new Set(planFaults(1, 120_000, { nodes, workers: 4 }).map(({ kind }) => kind));
      const expected = FAULT_KINDS.filter((kind) => nodes === 1 || kind !== 'swap-primary');
      expect([...kinds].sort()).toEqual([...expected].sort());
    }
  });

  it('lets nodes lag behind before one restarts with old data, and then hides the others', () => {
    for (const nodes of [3, 5]) {
      const faults = planFaults(1, 120_000, { nodes, workers: 4 });
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
