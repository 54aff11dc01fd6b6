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
      const kinds = new Set(planFaults(1, 120_000, { nodes, workers: 4 }).map(({ kind }) => kind));
      const expected = FAULT_KINDS.filter((kind) => nodes === 1 || kind !== 'swap-primary');
      expect([...kinds].sort()).toEqual([...expected].sort());
    }
  });

  it('ends with a fault that does not end by itself', () => {
    const last = (nodes: number) =>
      new Set(Array.from({ length: 20 }, (_, seed) => planFaults(seed, 5_000, { nodes, workers: 4 }).at(-1)!.kind));
    expect([...last(1)].sort()).toEqual(['half-open', 'swap-primary']);
    expect([...last(3)]).toEqual(['half-open']);
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
