import { Subject } from 'rxjs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ExtendOutcome, LockBackend } from 'nest-redis-lock/testing';
import { type LockEvent, type LockLostReason } from 'nest-redis-lock';
import type { Lease } from '../../lib/core/lease/lease.js';
import { EXTENSIONS_AT_ONCE, Leases } from '../../lib/core/lease/leases.js';
import { PAUSE_MS } from '../../lib/core/time/pacer.js';

const TTL_MS = 30_000;

/** Time passes only as the test says, and without jitter. */
beforeEach(() => {
  vi.spyOn(Math, 'random').mockReturnValue(0);
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'], now: 0 });
});
afterEach(() => {
  vi.useRealTimers();
  vi.restoreAllMocks();
});

const now = () => Date.now();

/** Leases whose extensions are answered as `answer` says, and what became of them. */
class Kennel {
  readonly extended: { key: string; at: number }[] = [];
  readonly lost: { key: string; reason: LockLostReason; at: number }[] = [];
  readonly faults: string[] = [];
  /** By how much the clock is ahead of the timers. */
  pauseMs = 0;
  answer: (key: string) => Promise<ExtendOutcome> = async () => ({ status: 'extended', sentAt: now() });
  readonly leases: Leases;

  constructor(marginMs = 0) {
    const backend: Partial<LockBackend> = {
      bounds: {},
      extend: ({ grant: { key } }, done) => {
        this.extended.push({ key, at: now() });
        void this.answer(key).then(done);
      },
      release: (_grant, _how, done) => void Promise.resolve().then(() => done({ status: 'released' })),
    };
    const events = new Subject<LockEvent>();
    events.subscribe((event) => this.#note(event));
    this.leases = new Leases({
      backend: backend as LockBackend,
      marginMs,
      now: () => now() + this.pauseMs,
      events,
      nextOwner: () => 'next',
    });
    this.leases.listener = {
      giveBack: ({ grant }, done) => {
        backend.release!(grant, {}, done);
        return false;
      },
      onLost: () => {},
      onBegun: () => {},
      waitingBehind: () => 0,
    };
  }

  /** @param extendTo it is granted for a short time, and extended to this ttl at once */
  watch(
    key: string,
    { autoExtend = true, sentAt = now(), ttlMs = TTL_MS, extendTo = undefined as number | undefined } = {},
  ) {
    return this.leases.add({ key, owner: key }, 1, ttlMs, sentAt, autoExtend, extendTo);
  }

  #note(event: LockEvent): void {
    if (event.type === 'lost') this.lost.push({ key: event.key, reason: event.reason, at: now() });
    if (event.type === 'extension-failed') this.faults.push(event.key);
  }
}

describe('Watchdog', () => {
  it('extends in each process at a pace of its own, up to a tenth earlier, so that those that were extended together drift apart [G283]', async () => {
    vi.mocked(Math.random).mockReturnValueOnce(0).mockReturnValueOnce(0.5).mockReturnValueOnce(1);
    const kennels = [new Kennel(), new Kennel(), new Kennel()];
    for (const kennel of kennels) kennel.watch('a');
    await vi.advanceTimersByTimeAsync(TTL_MS);
    expect(kennels.map(({ extended }) => extended.map(({ at }) => at))).toEqual([
      [10_000, 20_000, 30_000],
      [9_500, 19_000, 28_500],
      [9_000, 18_000, 27_000],
    ]);
  });
});

describe('Watchdog, with 10 000 leases due at once,', () => {
  const COUNT = 10_000;
  const PAUSES = Math.ceil(COUNT / EXTENSIONS_AT_ONCE) - 1;

  /** Leases that have come due a moment ago: the extensions of the first were sent. */
  function manyDue(): { kennel: Kennel; leases: Lease[] } {
    const kennel = new Kennel();
    const leases = Array.from({ length: COUNT }, (_, index) => kennel.watch(`lease ${index}`));
    vi.advanceTimersByTime(10_000);
    expect(kennel.extended).toHaveLength(EXTENSIONS_AT_ONCE);
    return { kennel, leases };
  }

  it('extends a bounded number at once and the next after a pause, in the order in which they came due', () => {
    const { kennel } = manyDue();
    for (let sent = EXTENSIONS_AT_ONCE; sent < COUNT; sent += EXTENSIONS_AT_ONCE) {
      expect(kennel.extended).toHaveLength(sent);
      vi.advanceTimersByTime(PAUSE_MS);
    }
    expect(kennel.extended.map(({ key }) => key)).toEqual(
      Array.from({ length: COUNT }, (_, index) => `lease ${index}`),
    );
    expect(kennel.extended.at(-1)!.at).toBe(10_000 + PAUSES * PAUSE_MS);
  });
});
