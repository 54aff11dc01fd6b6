import { Subject } from 'rxjs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ExtendOutcome, LockBackend } from 'nest-redis-lock/testing';
import { type LockEvent, type LockLostReason, NodeError } from 'nest-redis-lock';
import type { Lease } from '../../lib/core/lease/lease.js';
import { EXTENSIONS_AT_ONCE, Leases } from '../../lib/core/lease/leases.js';
import { PAUSE_MS } from '../../lib/core/time/pacer.js';
import { loopTurn } from '../../lib/core/time/event-loop.js';

const TTL_MS = 30_000;
const VALIDITY_MS = TTL_MS - 302;

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

const unavailable = async (): Promise<ExtendOutcome> => ({
  status: 'unavailable',
  causes: [new NodeError('somewhere', 'down')],
});

/** A lease that was granted for 2 s, and is to be extended to another ttl: the answer to that never comes. */
function neverAnswered(ttlMs: number): { kennel: Kennel; lease: Lease } {
  const kennel = new Kennel();
  kennel.answer = () => new Promise(() => {});
  return { kennel, lease: kennel.watch('a', { ttlMs: 2_000, extendTo: ttlMs }) };
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

  it('extends each time a third of the ttl has passed', async () => {
    const kennel = new Kennel();
    kennel.watch('a');
    await vi.advanceTimersByTimeAsync(TTL_MS + 10);
    expect(kennel.extended.map(({ at }) => at)).toEqual([10_000, 20_000, 30_000]);
    expect(kennel.lost).toEqual([]);
  });

  it('extends earlier when marginMs leaves less of the lease than a third of the ttl', async () => {
    const kennel = new Kennel(TTL_MS * 0.85);
    for (let index = 0; index < 10; index++) {
      kennel.watch(`lease ${index}`);
      await vi.advanceTimersByTimeAsync(200);
    }
    await vi.advanceTimersByTimeAsync(3 * TTL_MS);
    expect(kennel.lost).toEqual([]);
    expect(kennel.leases.size).toBe(10);
  });

  it('tries at least three times before the deadline, and tells each fault and then the loss', async () => {
    const kennel = new Kennel();
    kennel.answer = unavailable;
    const lease = kennel.watch('a');
    await vi.advanceTimersByTimeAsync(TTL_MS);
    expect(kennel.extended.length).toBeGreaterThanOrEqual(3);
    expect(kennel.faults.length).toBe(kennel.extended.length);
    expect(kennel.lost).toEqual([{ key: 'a', reason: 'unavailable', at: VALIDITY_MS }]);
    expect(lease.lostError().cause).toMatchObject({ message: 'somewhere: down' });
  });

  it('keeps the lease if the last try succeeds', async () => {
    const kennel = new Kennel();
    kennel.answer = unavailable;
    const lease = kennel.watch('a');
    await vi.advanceTimersByTimeAsync(TTL_MS * 0.9);
    kennel.answer = async () => ({ status: 'extended', sentAt: now() });
    await vi.advanceTimersByTimeAsync(TTL_MS * 0.5);
    expect(lease.checkState()).toBe('held');
  });

  it('tells the loss at the deadline when an extension is never answered', async () => {
    const kennel = new Kennel();
    kennel.answer = () => new Promise(() => {});
    kennel.watch('a');
    await vi.advanceTimersByTimeAsync(TTL_MS);
    expect(kennel.extended.length).toBe(1);
    expect(kennel.lost).toEqual([{ key: 'a', reason: 'unavailable', at: VALIDITY_MS }]);
  });

  it('extends a lease that was granted for a short time at once, and leaves open whether it is held until that is read', async () => {
    const kennel = new Kennel();
    let answer!: (outcome: ExtendOutcome) => void;
    kennel.answer = () => new Promise((resolve) => (answer = resolve));
    const lease = kennel.watch('a', { ttlMs: 2_000, extendTo: TTL_MS });
    expect(kennel.extended).toEqual([{ key: 'a', at: 0 }]);
    kennel.pauseMs = 5_000; // this process, before any timer or answer
    expect(lease.checkState()).toBe('unknown');
    answer({ status: 'extended', sentAt: 0 });
    await vi.advanceTimersByTimeAsync(0);
    expect(lease.checkState()).toBe('held');

    await vi.advanceTimersByTimeAsync(5_000); // the next extension is not answered
    expect(kennel.extended).toHaveLength(2);
    kennel.pauseMs += TTL_MS;
    expect(lease.checkState()).toBe('lost');
  });

  it('ends a lease that was granted for a short time when that is over, and no answer came', async () => {
    const { kennel } = neverAnswered(TTL_MS);
    await vi.advanceTimersByTimeAsync(2_010);
    await new Promise((resolve) => setImmediate(resolve));
    expect(kennel.lost).toMatchObject([{ key: 'a', reason: 'unavailable' }]);
  });

  it('knows that a lease is lost when even an extension that was granted would be over', async () => {
    const { kennel, lease } = neverAnswered(500);
    kennel.pauseMs = 600;
    expect(lease.checkState()).toBe('lost');
  });

  it('tells of a pause of the process that outlasts a lease that was granted for a short time', async () => {
    const { kennel } = neverAnswered(TTL_MS);
    kennel.pauseMs = 2_500;
    await vi.advanceTimersByTimeAsync(2_010);
    await new Promise((resolve) => setImmediate(resolve));
    expect(kennel.lost).toMatchObject([{ reason: 'stalled' }]);
  });

  it('keeps a lease that is over before it is watched until whoever keeps it knows it', async () => {
    const kennel = new Kennel();
    kennel.answer = () => new Promise(() => {});
    kennel.pauseMs = 3_000;
    kennel.watch('a', { ttlMs: 2_000, sentAt: 0, extendTo: TTL_MS });
    expect(kennel.lost).toEqual([]);
    await vi.advanceTimersByTimeAsync(10);
    await new Promise((resolve) => setImmediate(resolve));
    expect(kennel.lost).toHaveLength(1);
  });

  it("tells the loss at once when the answer is that the lock is another owner's", async () => {
    const kennel = new Kennel();
    kennel.answer = async () => ({ status: 'lost', reason: 'stolen' });
    kennel.watch('a');
    await vi.advanceTimersByTimeAsync(TTL_MS);
    expect(kennel.lost).toEqual([{ key: 'a', reason: 'stolen', at: 10_000 }]);
  });

  it('does not extend a lease without a watchdog, and tells its end at its deadline', async () => {
    const kennel = new Kennel();
    kennel.watch('a', { autoExtend: false });
    await vi.advanceTimersByTimeAsync(TTL_MS);
    expect(kennel.extended).toEqual([]);
    expect(kennel.lost).toEqual([{ key: 'a', reason: 'expired', at: VALIDITY_MS }]);
  });

  it('tells each end at its own deadline, also when a grant was answered later than one sent after it', async () => {
    const kennel = new Kennel();
    await vi.advanceTimersByTimeAsync(1_000);
    kennel.watch('sent-second', { autoExtend: false });
    kennel.watch('sent-first', { autoExtend: false, sentAt: now() - 1_000 });
    await vi.advanceTimersByTimeAsync(TTL_MS);
    expect(kennel.lost).toEqual([
      { key: 'sent-first', reason: 'expired', at: VALIDITY_MS },
      { key: 'sent-second', reason: 'expired', at: VALIDITY_MS + 1_000 },
    ]);
  });

  it('extends a lease whose grant was answered late before others that came due later', async () => {
    const kennel = new Kennel();
    await vi.advanceTimersByTimeAsync(8_000);
    kennel.watch('prompt');
    kennel.watch('late', { sentAt: now() - 8_000 });
    await vi.advanceTimersByTimeAsync(2_000);
    expect(kennel.extended).toEqual([{ key: 'late', at: 10_000 }]);
  });

  it('extends leases that come due within a fifteenth of the ttl together', async () => {
    const kennel = new Kennel();
    kennel.watch('first');
    await vi.advanceTimersByTimeAsync(1_900);
    kennel.watch('second');
    await vi.advanceTimersByTimeAsync(500);
    kennel.watch('third');
    await vi.advanceTimersByTimeAsync(10_000);
    expect(kennel.extended).toEqual([
      { key: 'first', at: 10_000 },
      { key: 'second', at: 10_000 },
      { key: 'third', at: 12_400 },
    ]);
  });

  it('sends one extension of a lease at a time, so that the last answer is that of the last command', async () => {
    const kennel = new Kennel();
    const replies: ((outcome: ExtendOutcome) => void)[] = [];
    kennel.answer = () => new Promise((resolve) => replies.push(resolve));
    const lease = kennel.watch('a');
    await vi.advanceTimersByTimeAsync(10_000);
    const extending = [kennel.leases.extend(lease, 60_000), kennel.leases.extend(lease, 40_000)];
    for (const sent of [1, 2, 3]) {
      await vi.advanceTimersByTimeAsync(1_000);
      expect(kennel.extended.length).toBe(sent);
      replies[sent - 1]!({ status: 'extended', sentAt: now() });
    }
    await Promise.all(extending);
    expect(lease.ttlMs).toBe(40_000);
    expect(lease.checkRemainingMs()).toBe(40_000 - 402);
  });

  it('goes on with the leases of other batches while one is not answered', async () => {
    const kennel = new Kennel();
    kennel.answer = (key) =>
      key === 'hung' ? new Promise(() => {}) : Promise.resolve({ status: 'extended', sentAt: now() });
    kennel.watch('hung');
    const well = kennel.watch('well');
    await vi.advanceTimersByTimeAsync(2 * TTL_MS);
    expect(well.checkState()).toBe('held');
    expect(kennel.lost.map(({ key }) => key)).toEqual(['hung']);
  });

  it('keeps any number of leases, of several ttls, with one timer', async () => {
    const kennel = new Kennel();
    for (let index = 0; index < 1_000; index++) {
      kennel.watch(`lease ${index}`, { ttlMs: TTL_MS + (index % 10), autoExtend: index % 2 === 0 });
    }
    expect(vi.getTimerCount()).toBe(1);
    await vi.advanceTimersByTimeAsync(10_100);
    expect(vi.getTimerCount()).toBe(1);
    expect(kennel.leases.size).toBe(1_000);
  });

  it('sends no extension of a lease after its release, and takes no notice of an answer that was on its way', async () => {
    const kennel = new Kennel();
    let reply!: (outcome: ExtendOutcome) => void;
    kennel.answer = () => new Promise((resolve) => (reply = resolve));
    const lease = kennel.watch('a');
    await vi.advanceTimersByTimeAsync(10_000);
    expect(await kennel.leases.release(lease)).toBe(true);
    reply({ status: 'extended', sentAt: now() });
    await vi.advanceTimersByTimeAsync(2 * TTL_MS);
    expect(kennel.extended.length).toBe(1);
    expect(kennel.lost).toEqual([]);
    expect(kennel.leases.size).toBe(0);
  });

  it('says that the process stalled when it finds the deadline passed long after it meant to look', async () => {
    const kennel = new Kennel();
    const lease = kennel.watch('a');
    vi.setSystemTime(2 * TTL_MS); // no timer has run meanwhile
    expect(lease.checkState()).toBe('lost');
    await undefined;
    expect(kennel.lost).toEqual([{ key: 'a', reason: 'stalled', at: 2 * TTL_MS }]);
  });

  it('retries a failed extension by a longer ttl within the lease that still runs', async () => {
    const kennel = new Kennel();
    const lease = kennel.watch('a', { ttlMs: 600 });
    kennel.answer = unavailable;
    await expect(kennel.leases.extend(lease, TTL_MS)).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    await vi.advanceTimersByTimeAsync(300);
    expect(kennel.extended.length).toBeGreaterThanOrEqual(3);
    kennel.answer = async () => ({ status: 'extended', sentAt: now() });
    await vi.advanceTimersByTimeAsync(100);
    expect(lease.checkRemainingMs()).toBeGreaterThan(20_000);
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

  it('lets the event loop run before it sends the last', async () => {
    const kennel = new Kennel();
    for (let index = 0; index < COUNT; index++) kennel.watch(`lease ${index}`);
    const turn = loopTurn().then(() => kennel.extended.length);
    vi.advanceTimersByTime(10_000);
    expect(await turn).toBe(EXTENSIONS_AT_ONCE);
  });

  it('extends each again a third of the ttl later, and a lease that comes due meanwhile at its own time', async () => {
    const { kennel } = manyDue();
    await vi.advanceTimersByTimeAsync(PAUSES * PAUSE_MS);
    expect(kennel.extended).toHaveLength(COUNT);
    kennel.watch('later', { sentAt: 5_000 });
    await vi.advanceTimersByTimeAsync(15_000 - now());
    expect(kennel.extended.slice(COUNT)).toEqual([{ key: 'later', at: 15_000 }]);
    await vi.advanceTimersByTimeAsync(20_000 + PAUSES * PAUSE_MS - now());
    const again = kennel.extended.slice(COUNT + 1);
    expect(again).toHaveLength(COUNT);
    expect(new Set(again.map(({ key }) => key)).size).toBe(COUNT);
    expect(kennel.lost).toEqual([]);
  });

  it('does not let a short lease wait for all of them', () => {
    const kennel = new Kennel();
    for (let index = 0; index < COUNT; index++) kennel.watch(`lease ${index}`);
    vi.advanceTimersByTime(9_905);
    kennel.watch('short', { ttlMs: 300 });
    vi.advanceTimersByTime(95 + PAUSES * PAUSE_MS);
    const short = kennel.extended.findIndex(({ key }) => key === 'short');
    const [dueAt, hurryAfterMs] = [10_005, (300 - 5) / 10];
    expect(kennel.extended[short]!.at).toBeLessThanOrEqual(dueAt + hurryAfterMs + PAUSE_MS);
    expect(short).toBeLessThan(COUNT / 2);
  });

  it('extends all of them at once if they have been due for a tenth of the lease, since the process stalled', () => {
    const kennel = new Kennel();
    for (let index = 0; index < COUNT; index++) kennel.watch(`lease ${index}`);
    vi.setSystemTime(13_000); // no timer has run meanwhile
    vi.advanceTimersToNextTimer();
    expect(kennel.extended).toHaveLength(COUNT);
  });

  it.each([
    ['is not extended', { autoExtend: false }, 'expired'],
    ['has an extension in flight', { autoExtend: true }, 'unavailable'],
  ])(
    'tells the loss of a lease that %s at its deadline, between two turns of the others',
    async (_, { autoExtend }, reason) => {
      const kennel = new Kennel();
      kennel.answer = (key) =>
        key === 'ends' ? new Promise(() => {}) : Promise.resolve({ status: 'extended', sentAt: 0 });
      const [ttlMs, deadline] = [10_107, 10_004];
      kennel.watch('ends', { autoExtend, ttlMs });
      for (let index = 0; index < COUNT; index++) kennel.watch(`lease ${index}`);
      vi.advanceTimersByTime(deadline - 1);
      expect(kennel.extended.filter(({ key }) => key !== 'ends')).toHaveLength(2 * EXTENSIONS_AT_ONCE);
      expect(kennel.lost).toEqual([]);
      vi.advanceTimersByTime(1);
      await undefined;
      expect(kennel.lost).toEqual([{ key: 'ends', reason, at: deadline }]);
    },
  );

  it('tells a loss before it sends the extensions of the same turn', () => {
    const kennel = new Kennel();
    for (let index = 0; index < COUNT; index++) kennel.watch(`lease ${index}`);
    const ends = kennel.watch('ends', { autoExtend: false, ttlMs: 10_106 }); // with the second turn
    let sentBefore: number | undefined;
    ends.checkSignal().addEventListener('abort', () => (sentBefore = kennel.extended.length));
    vi.advanceTimersByTime(10_000 + PAUSE_MS);
    expect(kennel.extended).toHaveLength(2 * EXTENSIONS_AT_ONCE);
    expect(sentBefore).toBe(EXTENSIONS_AT_ONCE);
  });

  it('says that the process stalled of a lease that was not extended since the process did not run', async () => {
    const { kennel, leases } = manyDue();
    vi.setSystemTime(VALIDITY_MS);
    expect(leases.at(-1)!.checkState()).toBe('lost');
    await undefined;
    expect(kennel.lost).toEqual([{ key: leases.at(-1)!.key, reason: 'stalled', at: VALIDITY_MS }]);
  });

  it('retries as many at once of those that failed together', async () => {
    const { kennel } = manyDue();
    let fail!: (outcome: ExtendOutcome) => void;
    const failing = new Promise<ExtendOutcome>((resolve) => (fail = resolve));
    kennel.answer = () => failing;
    await vi.advanceTimersByTimeAsync(PAUSES * PAUSE_MS);
    fail(await unavailable());
    await vi.advanceTimersByTimeAsync(0);
    const failed = COUNT - EXTENSIONS_AT_ONCE;
    expect(kennel.faults).toHaveLength(failed);
    kennel.answer = async () => ({ status: 'extended', sentAt: now() });
    vi.advanceTimersToNextTimer();
    expect(kennel.extended).toHaveLength(COUNT + EXTENSIONS_AT_ONCE);
    vi.advanceTimersByTime(PAUSE_MS - 1);
    expect(kennel.extended).toHaveLength(COUNT + EXTENSIONS_AT_ONCE);
    vi.advanceTimersByTime(1);
    expect(kennel.extended).toHaveLength(COUNT + 2 * EXTENSIONS_AT_ONCE);
    await vi.advanceTimersByTimeAsync(PAUSES * PAUSE_MS);
    expect(kennel.extended).toHaveLength(COUNT + failed);
    expect(kennel.lost).toEqual([]);
  });

  it('sends no extension of a lease that is released before its turn', async () => {
    const { kennel, leases } = manyDue();
    const released = [EXTENSIONS_AT_ONCE, 5_000, COUNT - 1].map((index) => leases[index]!);
    await Promise.all(released.map((lease) => kennel.leases.release(lease)));
    await vi.advanceTimersByTimeAsync(PAUSES * PAUSE_MS);
    expect(kennel.extended).toHaveLength(COUNT - released.length);
    const keys = new Set(kennel.extended.map(({ key }) => key));
    expect(released.filter(({ key }) => keys.has(key))).toEqual([]);
  });

  it('sends nothing more once the application has closed', async () => {
    const othersTimers = vi.getTimerCount(); // a client of an earlier file may be about to reconnect
    const { kennel } = manyDue();
    expect(kennel.leases.size).toBe(COUNT);
    kennel.leases.end();
    expect([kennel.leases.size, vi.getTimerCount() - othersTimers]).toEqual([0, 0]);
    await vi.advanceTimersByTimeAsync(TTL_MS);
    expect(kennel.extended).toHaveLength(EXTENSIONS_AT_ONCE);
    expect(kennel.lost.filter(({ reason }) => reason === 'shutdown')).toHaveLength(COUNT);
  });
});
