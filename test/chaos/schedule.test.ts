import { describe, expect, it } from 'vitest';
import { FAULT_KINDS } from './history.js';
import { planFaults } from './schedule.js';

const CAST = { nodes: 3, workers: 4 };

describe('the schedule of the nemesis', () => {
  it('depends on the seed alone', () => {
    expect(planFaults(7, 30_000, CAST)).toEqual(planFaults(7, 30_000, CAST));
    expect(planFaults(8, 30_000, CAST)).not.toEqual(planFaults(7, 30_000, CAST));
  });

  it('has every kind of fault in a minute, on each topology', () => {
    for (const nodes of [1, 3, 5]) {
      const kinds = new Set(planFaults(1, 60_000, { nodes, workers: 4 }).map(({ kind }) => kind));
      expect([...kinds].sort()).toEqual([...FAULT_KINDS].sort());
    }
  });

  it('is over in time, and in the order of time', () => {
    const faults = planFaults(3, 20_000, CAST);
    const times = faults.map(({ atMs }) => atMs);
    expect(times).toEqual([...times].sort((a, b) => a - b));
    expect(Math.max(...faults.map(({ atMs, forMs }) => atMs + forMs))).toBeLessThanOrEqual(20_000);
  });

  it('gives nobody two faults at a time', () => {
    const targets = planFaults(5, 60_000, CAST).filter(({ kind }) => kind !== 'isolate');
    const freeFrom = new Map<string, number>();
    for (const { node, worker, atMs, forMs } of targets) {
      const id = `${node} ${worker}`;
      expect(atMs).toBeGreaterThanOrEqual(freeFrom.get(id) ?? 0);
      freeFrom.set(id, atMs + forMs);
    }
  });
});
