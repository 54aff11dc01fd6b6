import { Subject } from 'rxjs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { LockBackend } from 'nest-redis-lock/testing';
import { Leases } from '../../lib/core/lease/leases.js';
import { GRANT_TTL_MS } from '../../lib/stores/node/messages.js';

const DAY_MS = 86_400_000;

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'], now: 0 });
});
afterEach(() => {
  vi.useRealTimers();
});

describe('a lease that was handed over and never extended', () => {
  it('is given back right after the grant is over, however long it was to be', async () => {
    const released: number[] = [];
    const lost: unknown[] = [];
    const now = () => Date.now();
    const leases = new Leases({
      backend: {
        extend: () => {},
        release: () => void released.push(now()),
      } as Partial<LockBackend> as LockBackend,
      marginMs: 0,
      now,
      events: new Subject(),
      nextOwner: () => 'next',
    });
    leases.listener = {
      giveBack: () => false,
      onLost: (lease) => lost.push(lease),
      onBegun: () => {},
      waitingBehind: () => 0,
    };
    const lease = leases.add({ key: 'key', owner: 'me' }, 7, GRANT_TTL_MS, now(), true, DAY_MS);
    await vi.advanceTimersByTimeAsync(GRANT_TTL_MS);
    await new Promise((resolve) => setImmediate(resolve)); // once more it is looked what was answered
    expect(lost).toEqual([lease]);
    await vi.advanceTimersByTimeAsync(100);
    expect(released).toHaveLength(1);
    expect(leases.size).toBe(0);
  });
});
