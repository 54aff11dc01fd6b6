import { expect, describe, it } from 'vitest';
import type { LockServiceOptions } from 'nest-redis-lock';
import { type ExtendRequest, fromPromises } from 'nest-redis-lock/testing';
import { ToyBackend } from '../contract/toy-backend.js';
import { now } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { serviceOn } from '../support/open-locks.js';
import { until } from '../support/until.js';

const TTL_MS = 30_000;
const HOUR_MS = 3_600_000;
/** For all operations except attempts: longer than any test. */
const TIME_LIMIT_MS = 120_000;
/** Nothing else extends such a lock. */
const ALONE = { watchdog: false };
const ENOUGH = new Error('enough');

type Extension = Awaited<ReturnType<ToyBackend['extend']>>;

/** A store whose extensions answer as a test wants. */
class Store extends ToyBackend {
  /** Called with each extension; may wait, fail, or leave it to `extended`. */
  answer: (request: ExtendRequest, extended: () => Promise<Extension>) => Promise<Extension> = (_, extended) =>
    extended();

  constructor() {
    super(now, 0);
  }

  override extend(request: ExtendRequest): Promise<Extension> {
    return this.answer(request, () => super.extend(request));
  }

  /** How long the lock still lasts, in milliseconds; 0: it is free. */
  async standsMs(key: string): Promise<number> {
    return (await this.inspect(key))?.holders[0].remainingMs ?? 0;
  }
}

function setUp(options: LockServiceOptions = {}) {
  const store = new Store();
  const open = () => serviceOn(fromPromises(store, now, TIME_LIMIT_MS), { ttlMs: TTL_MS, ...options });
  return { store, locks: open(), others: open() };
}

/** Lets extensions by more than the ttl run, but answers them only when the gate is open. */
function answersLate(store: Store, gate: Gate): { ran: () => Promise<void> } {
  let ran = false;
  store.answer = async ({ ttlMs }, extended) => {
    const answer = await extended();
    ran ||= ttlMs > TTL_MS;
    if (ttlMs > TTL_MS) await gate.opened;
    return answer;
  };
  return { ran: async () => void (await until(() => ran, { what: 'the extension to run' })) };
}

const untilItStandsForItsTtl = (store: Store, key: string) =>
  until(async () => (await store.standsMs(key)) <= TTL_MS, { what: 'the lock to stand for its ttl only' });

describe('the holdMs of a nested call that was given up', () => {
  it('is taken back from the store when its signal has aborted [G523]', async () => {
    const { store, locks } = setUp();
    const gate = new Gate();
    const { ran } = answersLate(store, gate);
    await locks.withLock('key', ALONE, async (lock) => {
      const giveUp = new AbortController();
      const nested = locks.acquire('key', { holdMs: HOUR_MS, signal: giveUp.signal });
      await ran();
      giveUp.abort(ENOUGH);
      await expect(nested).rejects.toBe(ENOUGH);
      expect(await store.standsMs('key')).toBeGreaterThan(TTL_MS);
      gate.open();
      await untilItStandsForItsTtl(store, 'key');
      await lock.extend();
      expect(await store.standsMs('key')).toBeLessThanOrEqual(TTL_MS);
    });
    expect(await store.standsMs('key')).toBe(0);
    expect(locks.size).toBe(0);
  });

  it('is taken back when the store ran it and its answer was lost, at the next extension if not at once [G524]', async () => {
    const { store, locks } = setUp();
    await locks.withLock('key', async (lock) => {
      store.answer = async ({ ttlMs }, extended) => {
        if (ttlMs > TTL_MS) await extended();
        throw new Error('the answer is lost');
      };
      await expect(locks.acquire('key', { holdMs: HOUR_MS })).rejects.toThrow(/"key" could not be kept/);
      expect(await store.standsMs('key')).toBeGreaterThan(TTL_MS);
      store.answer = (_, extended) => extended();
      await lock.extend();
      expect(await store.standsMs('key')).toBeLessThanOrEqual(TTL_MS);
    });
    expect(await store.standsMs('key')).toBe(0);
  });

  it('is taken back at once when only its own answer was lost, though nothing else extends the lock', async () => {
    const { store, locks } = setUp();
    await locks.withLock('key', ALONE, async () => {
      store.answer = async ({ ttlMs }, extended) => {
        const answer = await extended();
        if (ttlMs > TTL_MS) throw new Error('the answer is lost');
        return answer;
      };
      await expect(locks.acquire('key', { holdMs: HOUR_MS })).rejects.toThrow(/"key" could not be kept/);
      await untilItStandsForItsTtl(store, 'key');
    });
  });

  it('is taken back as far as no other call wants it [G527]', async () => {
    const { store, locks } = setUp();
    const gate = new Gate();
    await locks.withLock('key', async () => {
      const giveUp = new AbortController();
      store.answer = async (_, extended) => {
        const answer = await extended();
        await gate.opened;
        return answer;
      };
      const longer = locks.acquire('key', { holdMs: HOUR_MS, signal: giveUp.signal });
      const shorter = locks.acquire('key', { holdMs: HOUR_MS / 2 });
      await until(async () => (await store.standsMs('key')) > HOUR_MS / 2, { what: 'the extension to run' });
      giveUp.abort(ENOUGH);
      await expect(longer).rejects.toBe(ENOUGH);
      gate.open();
      await shorter;
      await until(async () => (await store.standsMs('key')) <= HOUR_MS / 2, {
        what: 'the longer one to be taken back',
      });
      expect(await store.standsMs('key')).toBeGreaterThan(HOUR_MS / 3);
    });
    expect(await store.standsMs('key')).toBeGreaterThan(HOUR_MS / 3); // kept for the other call
  });
});

describe('a call whose hold is not confirmed', () => {
  const refusal = (key: string) => ({
    code: 'LOCK_UNAVAILABLE',
    key,
    message: expect.stringMatching(/could not be kept: .*no answer for \d+ ms, and waitMs has passed/) as string,
  });

  it('is refused when its waitMs has passed, and leaves nothing behind [G525]', async () => {
    const { store, locks } = setUp();
    const gate = new Gate();
    const { ran } = answersLate(store, gate);
    const call = locks.acquire('key', { waitMs: 300, holdMs: HOUR_MS });
    await expect(call).rejects.toMatchObject(refusal('key'));
    await ran();
    gate.open();
    await until(async () => (await store.standsMs('key')) === 0 && locks.size === 0, { what: 'nothing to be left' });
  });

  it('is refused when the time of an attempt has passed, if it tries once', async () => {
    const { store, locks } = setUp();
    store.attemptTimeoutMs = () => 300;
    const gate = new Gate();
    answersLate(store, gate);
    const refusals = [
      locks.tryAcquire('key', { holdMs: HOUR_MS }),
      locks.tryAcquireAll(['one', 'more'], { holdMs: HOUR_MS }),
      locks.acquire('other', { waitMs: 0, holdMs: HOUR_MS }),
    ].map((call) => expect(call).rejects.toThrow(/could not be kept: .*no answer for \d+ ms$|no answer for \d+ ms\./));
    await Promise.all(refusals);
    gate.open();
    await until(() => locks.size === 0, { what: 'nothing to be left' });
  });

  it('is refused as a set when its waitMs has passed, and names a lock that the store has not kept [G529]', async () => {
    const { store, locks } = setUp();
    const gate = new Gate();
    store.answer = async ({ grant: { key } }, extended) => {
      if (key === 'b') await gate.opened;
      return extended();
    };
    const call = locks.acquireAll(['a', 'b'], { waitMs: 300, holdMs: HOUR_MS });
    await expect(call).rejects.toMatchObject(refusal('b'));
    gate.open();
    await until(() => locks.size === 0, { what: 'nothing to be left here' });
    expect((await store.standsMs('a')) + (await store.standsMs('b'))).toBe(0);
  });

  it('rejects with the reason of its signal when that aborts, but not before the event loop has run [G526]', async () => {
    const { store, locks } = setUp();
    for (const keys of ['key', ['a', 'b']]) {
      const gate = new Gate();
      const { ran } = answersLate(store, gate);
      const giveUp = new AbortController();
      const options = { holdMs: HOUR_MS, signal: giveUp.signal };
      const call: Promise<unknown> =
        typeof keys === 'string' ? locks.acquire(keys, options) : locks.acquireAll(keys, options);
      const order: unknown[] = [];
      const ended = call.catch((error: unknown) => order.push(error));
      await ran();
      giveUp.abort(ENOUGH);
      setImmediate(() => order.push('the event loop has run'));
      await ended;
      expect(order).toEqual(['the event loop has run', ENOUGH]);
      gate.open();
      await until(() => locks.size === 0, { what: 'nothing to be left here' });
      for (const key of ['key', 'a', 'b']) expect(await store.standsMs(key)).toBe(0);
    }
  });
});
