import { describe, expect, it } from 'vitest';
import { Lease, type LeaseState } from '../../lib/core/locks/lease.js';
import type { Leases } from '../../lib/core/locks/leases.js';
import type { Line } from '../../lib/core/locks/line.js';

const TTL_MS = 10_000;
const GRANT_TTL_MS = 2_000;

/** A lease in each of its states, reached in the shortest way, and how often its loss was reported. */
function leaseIn(state: LeaseState) {
  const clock = { ms: 0 };
  const reports: LeaseState[] = [];
  const leases: Pick<Leases, 'marginMs' | 'now' | 'expiryReason' | 'onLossDetected'> = {
    marginMs: 0,
    now: () => clock.ms,
    expiryReason: () => 'unavailable',
    onLossDetected: (lost) => reports.push(lost.checkState()),
  };
  const grant = { key: 'key', owner: 'me' };
  const lease = new Lease(
    { grant, fencingToken: 1, ttlMs: GRANT_TTL_MS, sentAt: 0, autoExtend: true, extendTo: TTL_MS },
    {} as Line,
    leases as Leases,
  );
  if (state === 'extending' || state === 'unknown') lease.beginExtension(TTL_MS);
  if (state === 'unknown') clock.ms = GRANT_TTL_MS;
  if (state === 'lost') lease.lose('stolen');
  if (state === 'released') lease.release();
  expect(lease.checkState()).toBe(state);
  return { lease, clock, reports };
}

const STEPS: Record<string, (lease: Lease) => boolean> = {
  beginExtension: (lease) => lease.beginExtension(TTL_MS) !== undefined,
  onExtended: (lease) => lease.onExtended(GRANT_TTL_MS),
  onExtensionFailed: (lease) => lease.onExtensionFailed(),
  release: (lease) => lease.release(),
  lose: (lease) => lease.lose('expired'),
};

describe('a lease', () => {
  it.each<[from: LeaseState, step: string, to: LeaseState]>([
    ['held', 'beginExtension', 'extending'],
    ['held', 'release', 'released'],
    ['held', 'lose', 'lost'],
    ['extending', 'onExtended', 'held'],
    ['extending', 'onExtensionFailed', 'held'],
    ['extending', 'release', 'released'],
    ['extending', 'lose', 'lost'],
    ['unknown', 'onExtended', 'held'],
    ['unknown', 'onExtensionFailed', 'lost'],
    ['unknown', 'lose', 'lost'],
  ])('that is %s becomes, by %s, %s', (from, step, to) => {
    const { lease, reports } = leaseIn(from);
    expect(STEPS[step]!(lease)).toBe(true);
    expect(lease.checkState()).toBe(to);
    expect(reports).toEqual(to === 'lost' ? ['lost'] : []);
  });

  it.each<[from: LeaseState, step: string]>([
    ['held', 'onExtended'],
    ['extending', 'beginExtension'],
    ['unknown', 'beginExtension'],
    ['unknown', 'release'],
    ...Object.keys(STEPS).flatMap((step): [LeaseState, string][] => [
      ['lost', step],
      ['released', step],
    ]),
  ])('that is %s ignores %s', (from, step) => {
    const { lease, reports } = leaseIn(from);
    const before = { deadline: lease.deadline, ttlMs: lease.ttlMs, reports: [...reports] };
    expect(STEPS[step]!(lease)).toBe(false);
    expect(lease.checkState()).toBe(from);
    expect({ deadline: lease.deadline, ttlMs: lease.ttlMs, reports }).toEqual(before);
  });

  it('that was extended before is lost at its deadline, not unknown, while another extension is under way', () => {
    const { lease, clock } = leaseIn('extending');
    lease.onExtended(0);
    clock.ms = 3_000;
    lease.beginExtension(TTL_MS);
    expect(lease.checkState()).toBe('extending');
    clock.ms = lease.deadline;
    expect(lease.checkState()).toBe('lost');
  });

  it('that is unknown is lost when even a granted extension would have ended', () => {
    const { lease, clock } = leaseIn('unknown');
    clock.ms = TTL_MS;
    expect(lease.checkState()).toBe('lost');
  });

  it('a lease is lost at the earliest time until which a call may hold it, and a limit that is lifted does not count', () => {
    const { lease, clock } = leaseIn('held');
    const { deadline } = lease;
    lease.demands.endBy(deadline + 1);
    expect(lease.endsAt).toBe(deadline);
    for (const until of [500, 300, 300]) lease.demands.endBy(until);
    lease.demands.liftEnd(300);
    expect(lease.endsAt).toBe(300);
    lease.demands.liftEnd(300);
    expect(lease.endsAt).toBe(500);
    clock.ms = 499;
    expect([lease.checkState(), lease.checkRemainingMs()]).toEqual(['held', 1]);
    clock.ms = 500;
    expect([lease.checkState(), lease.checkRemainingMs()]).toEqual(['lost', 0]);
  });

  it('a lease that is unknown is lost when a call has held it for too long, although its extension may have been granted', () => {
    const { lease, clock } = leaseIn('unknown');
    lease.demands.endBy(GRANT_TTL_MS + 100);
    expect(lease.checkState()).toBe('unknown');
    clock.ms = GRANT_TTL_MS + 100;
    expect(lease.checkState()).toBe('lost');
    expect(lease.onExtended(GRANT_TTL_MS)).toBe(false);
  });
});
