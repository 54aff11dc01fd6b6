import { expect, describe, it, onTestFinished } from 'vitest';
import type { LockServiceOptions } from 'nest-redis-lock';
import { type ExtendRequest, fromPromises } from 'nest-redis-lock/testing';
import { ToyBackend } from '../contract/toy-backend.js';
import { now } from '../support/claims.js';
import { Gate } from '../support/gate.js';
import { RedisServer } from '../support/redis-server.js';
import { openLocks, serviceOn } from '../support/open-locks.js';
import { TcpProxy } from '../support/tcp-proxy.js';
import { until } from '../support/until.js';

const TTL_MS = 30_000;
const HOUR_MS = 3_600_000;
/** For all operations but an attempt: longer than any test. */
const TIME_LIMIT_MS = 120_000;
/** Nothing else extends such a lock. */
const ALONE = { watchdog: false };
const ENOUGH = new Error('enough');

type Extension = Awaited<ReturnType<ToyBackend['extend']>>;

/** A store whose extensions answer as a test wants it. */
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

  /** For how long the lock stands, in milliseconds; 0: it is free. */
  async standsMs(key: string): Promise<number> {
    return (await this.inspect(key))?.holders[0].remainingMs ?? 0;
  }
}

function setUp(options: LockServiceOptions = {}) {
  const store = new Store();
  const open = () => serviceOn(fromPromises(store, now, TIME_LIMIT_MS), { ttlMs: TTL_MS, ...options });
  return { store, locks: open(), others: open() };
}

/** Has extensions by more than the ttl run, but answers them only when the gate is open. */
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

describe('a call with holdMs', () => {
  it('for several keys is refused when one of its locks was lost while another was confirmed, and keeps none', async () => {
    const { store, locks, others } = setUp();
    const gate = new Gate();
    let hasAsked = false;
    store.answer = async ({ grant }, extended) => {
      const answer = await extended();
      hasAsked ||= grant.key === 'b';
      if (grant.key === 'b') await gate.opened;
      return answer;
    };
    const set = locks.acquireAll(['a', 'b'], { holdMs: HOUR_MS, waitMs: TIME_LIMIT_MS });
    await until(() => hasAsked, { what: 'the second lock to be asked for' });
    expect(await locks.forceRelease('a')).toBe(true);
    const other = await others.acquire('a');
    gate.open();
    await expect(set).rejects.toThrow(/"a" could not be kept: .*lost again before it could be kept \(forced\)/);
    await until(async () => (await store.standsMs('b')) === 0, { what: 'the second lock to be given back' });
    expect(other.isHeld).toBe(true);
  });

  it('reports that it gave up when its hold was not confirmed in time', async () => {
    const { store, locks } = setUp();
    const gate = new Gate();
    answersLate(store, gate);
    const types: string[] = [];
    locks.events$.subscribe(({ type }) => types.push(type));
    await expect(locks.acquire('key', { holdMs: HOUR_MS, waitMs: 100 })).rejects.toThrow(/"key" could not be kept/);
    expect(types).toContain('unavailable');
    gate.open();
  });

  it('leaves the ttl that its holder has asked for meanwhile', async () => {
    const { store, locks } = setUp();
    const gate = new Gate();
    await locks.withLock('key', ALONE, async (lock) => {
      store.answer = async (_, extended) => {
        await gate.opened;
        return extended();
      };
      const extensions = [lock.extend(), lock.extend(HOUR_MS)];
      const nested = locks.acquire('key', { holdMs: 1, waitMs: TIME_LIMIT_MS });
      gate.open();
      await Promise.all([...extensions, nested]);
      expect(lock.remainingMs).toBeGreaterThan(TTL_MS);
      await (await nested).release();
    });
  });
});

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

  it('is taken back without another extension when the one that does it fails, as the watchdog tries again', async () => {
    const { store, locks } = setUp({ ttlMs: 10_000 });
    await locks.withLock('key', async () => {
      let failures = 0;
      store.answer = async ({ ttlMs }, extended) => {
        if (ttlMs > 10_000) await extended();
        if (failures++ < 2) throw new Error('the answer is lost');
        return extended();
      };
      await expect(locks.acquire('key', { holdMs: HOUR_MS })).rejects.toThrow(/"key" could not be kept/);
      await until(async () => (await store.standsMs('key')) <= 10_000, { what: 'the watchdog to take it back' });
    });
  });

  it('is taken back when another key of its set was refused', async () => {
    const { store, locks } = setUp();
    await locks.withLock('a', ALONE, async () => {
      store.answer = ({ grant: { key } }, extended) =>
        key === 'b' ? Promise.resolve({ status: 'lost', reason: 'expired' }) : extended();
      const nested = locks.acquireAll(['a', 'b'], { holdMs: HOUR_MS });
      await expect(nested).rejects.toThrow(/"b" could not be kept/);
      await untilItStandsForItsTtl(store, 'a');
    });
    await until(async () => (await store.standsMs('a')) + (await store.standsMs('b')) === 0, { what: 'both are free' });
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
    expect(await store.standsMs('key')).toBeGreaterThan(HOUR_MS / 3); // kept for the other one
  });

  it('leaves what a longer one wants when a shorter one is given up', async () => {
    const { store, locks } = setUp();
    await locks.withLock('key', async (lock) => {
      await locks.withLock('key', { holdMs: HOUR_MS }, () => {});
      const giveUp = new AbortController();
      giveUp.abort(ENOUGH);
      await expect(locks.acquire('key', { holdMs: HOUR_MS / 2, signal: giveUp.signal })).rejects.toBe(ENOUGH);
      await lock.extend();
      expect(await store.standsMs('key')).toBeGreaterThan(HOUR_MS / 2);
    });
    expect(await store.standsMs('key')).toBeGreaterThan(HOUR_MS / 2);
  });

  it('leaves nothing of a lock that was released or lost meanwhile', async () => {
    const { store, locks } = setUp();
    for (const end of ['released', 'lost']) {
      const gate = new Gate();
      const { ran } = answersLate(store, gate);
      const giveUp = new AbortController();
      let nested: Promise<unknown> | undefined;
      const outer = locks.withLock('key', { onLost: 'ignore' }, async () => {
        nested = locks.acquire('key', { holdMs: HOUR_MS, signal: giveUp.signal });
        nested.catch(() => {});
        await ran();
        if (end === 'lost') await locks.forceRelease('key');
      });
      await outer;
      giveUp.abort(ENOUGH);
      await expect(nested).rejects.toBe(ENOUGH);
      gate.open();
      await until(() => locks.size === 0, { what: 'nothing to be left here' });
      expect(await store.standsMs('key')).toBe(0);
    }
  });

  it.each([
    ['is not passed on with its lock within the process as long as the store has not taken it back', false],
    ['does not keep its lock from being passed on within the process once the store has taken it back', true],
  ])('%s', async (_, isTakenBack) => {
    const { store, locks, others } = setUp({ cohortMs: 60_000 });
    const holder = await others.acquire('key');
    const gate = new Gate();
    const { ran } = answersLate(store, gate);
    const giveUp = new AbortController();
    let owner: string | undefined;
    const first = locks.withLock('key', async (lock) => {
      owner = (lock as unknown as { owner: string }).owner;
      const nested = locks.acquire('key', { holdMs: HOUR_MS, signal: giveUp.signal });
      await ran();
      giveUp.abort(ENOUGH);
      await expect(nested).rejects.toBe(ENOUGH);
      if (!isTakenBack) return;
      gate.open();
      await untilItStandsForItsTtl(store, 'key');
      await lock.extend();
    });
    const second = locks.acquire('key'); // the lock is granted for both in turn
    await until(() => locks.stats()[0]?.waiting === 2, { what: 'both to wait' });
    await holder.release();
    await first;
    const next = await second;
    expect((next as unknown as { owner: string }).owner === owner).toBe(isTakenBack);
    expect(await store.standsMs('key')).toBeLessThanOrEqual(TTL_MS);
    gate.open();
    await next.release();
  });
});

describe('a call whose hold is not confirmed', () => {
  const refusal = (key: string) => ({
    code: 'LOCK_UNAVAILABLE',
    key,
    message: expect.stringMatching(/could not be kept: .*no answer for \d+ ms, and waitMs is over/) as string,
  });

  it('is refused when its waitMs is over, and leaves nothing behind [G525]', async () => {
    const { store, locks } = setUp();
    const gate = new Gate();
    const { ran } = answersLate(store, gate);
    const call = locks.acquire('key', { waitMs: 300, holdMs: HOUR_MS });
    await expect(call).rejects.toMatchObject(refusal('key'));
    await ran();
    gate.open();
    await until(async () => (await store.standsMs('key')) === 0 && locks.size === 0, { what: 'nothing to be left' });
  });

  it('is refused when the time of an attempt is over, where it tries once', async () => {
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

  it('is refused as a set when its waitMs is over, and names a lock that the store has not kept [G529]', async () => {
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

  it('has for it what is left of its waitMs when it was granted its lock', async () => {
    const { store, locks, others } = setUp();
    const gate = new Gate();
    answersLate(store, gate);
    const holder = await others.acquire('key');
    const ended: string[] = [];
    const calls = [locks.acquire('key', { waitMs: 5_000, holdMs: HOUR_MS })];
    const then = performance.now() + 2_000;
    await until(() => performance.now() > then, { what: 'a part of its time to be over' });
    await holder.release();
    await until(() => locks.stats()[0]?.held === 1, { what: 'it to be granted its lock' });
    calls.push(locks.acquire('another', { waitMs: 4_500, holdMs: HOUR_MS }));
    const names = ['waited', 'later'];
    await Promise.all(calls.map((call, index) => call.catch(() => ended.push(names[index]!))));
    expect(ended).toEqual(names);
    gate.open();
    await until(() => locks.size === 0, { what: 'nothing to be left' });
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

describe.each([
  ['one Redis', 1],
  ['a Redlock', 3],
])('on %s', (_, count) => {
  it('waitMs and the signal end a call whose hold is owed, and nothing of it stays in the store', async () => {
    const servers = await Promise.all(Array.from({ length: count }, () => RedisServer.start()));
    onTestFinished(async () => void (await Promise.all(servers.map((server) => server.stop()))));
    const proxies = await Promise.all(servers.map(({ port }) => TcpProxy.start(port)));
    onTestFinished(async () => void (await Promise.all(proxies.map((proxy) => proxy.stop()))));
    const urls = proxies.map(({ url }) => url);
    const locks = await openLocks({
      ...(count === 1 ? { redis: urls[0]! } : { redlock: urls, admission: false }),
      ttlMs: count === 1 ? TTL_MS : HOUR_MS, // holdMs of a Redlock is at most that of the registration
      commandTimeoutMs: 20_000,
    });
    const standMs = (key: string) =>
      Promise.all(servers.map(async (server) => Number(await server.command('PTTL', `lock:{${key}}`))));
    const ttlMs = TTL_MS;
    await locks.withLock('warm-up', { holdMs: 1 }, () => {}); // the servers know the scripts
    const giveUp = new AbortController();
    await locks.withLock('outer', { ttlMs }, async () => {
      locks.events$.subscribe(({ type }) => type === 'acquired' && proxies.forEach((proxy) => proxy.dropReplies()));
      const timed = locks.acquire('timed', { ttlMs, holdMs: HOUR_MS, waitMs: 1_000 });
      await expect(timed).rejects.toThrow(/"timed" could not be kept/);
      const aborted = locks.acquire('outer', { holdMs: HOUR_MS, signal: giveUp.signal });
      aborted.catch(() => {});
      await until(async () => (await standMs('outer')).every((ms) => ms > TTL_MS), { what: 'the store to keep it' });
      giveUp.abort(ENOUGH);
      await expect(aborted).rejects.toBe(ENOUGH);
      for (const proxy of proxies) proxy.passReplies();
      await until(async () => (await standMs('outer')).every((ms) => ms <= TTL_MS), {
        what: 'the lock to stand for its ttl only',
        timeoutMs: 20_000,
      });
      await until(async () => (await standMs('timed')).every((ms) => ms === -2), { what: 'the other one to be free' });
    });
  });
});
