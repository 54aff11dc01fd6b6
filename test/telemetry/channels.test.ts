import { AsyncLocalStorage } from 'node:async_hooks';
import { subscribe, tracingChannel, unsubscribe, type TracingChannelSubscribers } from 'node:diagnostics_channel';
import { setImmediate as loopTurn } from 'node:timers/promises';
import { inspect } from 'node:util';
import type { AcquireTrace, HoldTrace, LockEventMessage } from 'nest-redis-lock';
import { describe, expect, it, onTestFinished, vi } from 'vitest';
import { Telemetry } from '../../lib/core/service/telemetry.js';
import { openLocks } from '../support/open-locks.js';
import { eventsOf, warningsOf } from '../support/scene.js';
import { until } from '../support/until.js';

const CHANNELS = ['start', 'end', 'asyncStart', 'asyncEnd', 'error'] as const;

/** The messages of a tracing channel, each with the name of its channel and a copy of the trace at that time. */
function published<Trace extends object>(name: string) {
  const messages: { at: (typeof CHANNELS)[number]; trace: Trace }[] = [];
  const note = (at: (typeof CHANNELS)[number]) => (trace: Trace) => void messages.push({ at, trace: { ...trace } });
  const subscribers = Object.fromEntries(CHANNELS.map((at) => [at, note(at)]));
  const channel = tracingChannel<unknown, Trace>(name);
  channel.subscribe(subscribers as unknown as TracingChannelSubscribers<Trace>);
  onTestFinished(() => channel.unsubscribe(subscribers as unknown as TracingChannelSubscribers<Trace>));
  const of = (at: (typeof CHANNELS)[number]) =>
    messages.filter((message) => message.at === at).map(({ trace }) => trace);
  return { messages, of };
}

function publishedEvents(): LockEventMessage[] {
  const messages: LockEventMessage[] = [];
  const note = (message: unknown) => void messages.push(message as LockEventMessage);
  subscribe('nest-redis-lock:event', note);
  onTestFinished(() => void unsubscribe('nest-redis-lock:event', note));
  return messages;
}

const nothing = () => Promise.resolve();

describe('the channel nest-redis-lock:acquire', () => {
  it('reports what a call asks for, then how it got its lock, and never an owner value [G447]', async () => {
    const locks = await openLocks({ memory: true }, 'stock');
    const { messages, of } = published<AcquireTrace>('nest-redis-lock:acquire');
    const events = publishedEvents();
    const held = await locks.acquire('order:7', { ttlMs: 5_000, label: 'orders' });
    const waiting = locks.acquire('order:7', { waitMs: 3_000 });
    await expect(locks.acquire('order:7', { waitMs: 0 })).rejects.toThrow('"order:7"');
    await held.release();
    const next = await waiting;
    await next.release();
    const { owner, fencingToken } = held;
    expect(of('start')).toEqual([
      { registration: 'stock', label: 'orders', key: 'order:7', ttlMs: 5_000, waitMs: 10_000 },
      { registration: 'stock', label: 'order', key: 'order:7', ttlMs: 30_000, waitMs: 3_000 },
      { registration: 'stock', label: 'order', key: 'order:7', ttlMs: 30_000, waitMs: 0 },
    ]);
    const waitedMs = expect.any(Number) as number;
    expect(of('asyncEnd')).toMatchObject([
      { outcome: 'acquired', grant: 'free', fencingToken, waitedMs },
      { outcome: 'contended', error: { code: 'LOCK_CONTENDED' }, waitedMs },
      { outcome: 'acquired', grant: expect.stringMatching(/waited|passed/) as string, waitedMs },
    ]);
    for (const { trace } of messages) expect(trace).not.toHaveProperty('result', expect.anything()); // the lock has its owner
    await until(() => events.some(({ type }) => type === 'contended'), { what: 'the events' });
    expect(owner).toMatch(/\/\d+\//);
    const withoutErrors = messages.map(({ trace }) => ({ ...trace, error: undefined }));
    expect(inspect([withoutErrors, events], { depth: 9 })).not.toContain(owner.slice(0, owner.lastIndexOf('/')));
  });

  it('publishes no contention error if the caller goes on without the lock [G448]', async () => {
    const locks = await openLocks({ memory: true });
    const { of } = published<AcquireTrace>('nest-redis-lock:acquire');
    const held = await locks.acquire('k');
    expect(await locks.tryAcquire('k')).toBeNull();
    expect(await locks.tryAcquireAll(['j', 'k'])).toBeNull();
    expect(of('error')).toEqual([]);
    const timeout = locks.acquire('k', { signal: AbortSignal.timeout(1) });
    await expect(timeout).rejects.toMatchObject({ name: 'TimeoutError' });
    await expect(locks.withLock('k', { waitMs: 0 }, nothing)).rejects.toThrow('"k"');
    await held.release();
    const deadlock = locks.withLock('k', () => locks.acquire('k', { reentrant: false }));
    await expect(deadlock).rejects.toMatchObject({ code: 'LOCK_SELF_DEADLOCK' });
    await locks.withLock('k', () => locks.withLock('k', nothing));
    await locks.onApplicationShutdown();
    await expect(locks.acquire('k')).rejects.toMatchObject({ code: 'LOCK_UNAVAILABLE' });
    expect(of('asyncEnd').map(({ outcome, grant = '-' }) => `${outcome} ${grant}`)).toEqual([
      'acquired free',
      'contended -',
      'contended -',
      'aborted -',
      'contended -',
      'acquired free',
      'refused -',
      'acquired free',
      'acquired reentrant',
      'unavailable -',
    ]);
    expect(of('error')).toHaveLength(4);
  });

  it('has one trace for a call for several keys, under the first of them [G449]', async () => {
    const locks = await openLocks({ memory: true });
    const { of } = published<AcquireTrace>('nest-redis-lock:acquire');
    const holds = published<HoldTrace>('nest-redis-lock:hold');
    const held = await locks.acquire('b:2');
    const work = locks.withLock(['b:2', 'a:1'], nothing);
    await loopTurn(); // it tries before it waits
    const waiting = () => locks.stats().find(({ label }) => label === 'b')?.waiting;
    await until(() => waiting() === 1, { what: 'the call waits' });
    await held.release();
    await work;
    expect(of('asyncEnd').slice(1)).toMatchObject([
      {
        label: 'a',
        key: 'a:1',
        keys: ['a:1', 'b:2'],
        outcome: 'acquired',
        grant: expect.stringMatching(/waited|passed/),
      },
    ]);
    expect(of('asyncEnd')[1]).not.toHaveProperty('fencingToken');
    expect(holds.of('asyncEnd')).toEqual([{ registration: 'default', label: 'a', key: 'a:1', keys: ['a:1', 'b:2'] }]);
  });
});

describe('the channel nest-redis-lock:hold', () => {
  it('has the work in its context, but not the wait, nor what comes after [G450]', async () => {
    const locks = await openLocks({ memory: true });
    const { of } = published<HoldTrace>('nest-redis-lock:hold');
    const context = new AsyncLocalStorage<string>();
    const { start } = tracingChannel<string, HoldTrace>('nest-redis-lock:hold');
    start.bindStore(context, ({ label }) => `hold ${label}`);
    onTestFinished(() => void start.unbindStore(context));
    const seen: unknown[] = [];
    await context.run('request', async () => {
      await locks.withLock('k', async ({ fencingToken }) => {
        await Promise.resolve();
        seen.push(context.getStore(), fencingToken);
      });
      seen.push(context.getStore());
    });
    await expect(locks.withLock('k', () => Promise.reject(new Error('of the work')))).rejects.toThrow('of the work');
    expect(seen).toEqual(['hold _key', of('start')[0]!.fencingToken, 'request']);
    expect(of('error')).toMatchObject([{ key: 'k', error: { message: 'of the work' } }]);
  });
});

describe('the channel nest-redis-lock:event', () => {
  it('has each event with its registration, whether events$ is observed or not [G451]', async () => {
    const locks = await openLocks({ memory: true }, 'stock');
    const messages = publishedEvents();
    await locks.withLock('k', nothing);
    await until(() => messages.length === 2, { what: 'two events' });
    expect(messages).toEqual([
      expect.objectContaining({ type: 'acquired', registration: 'stock', key: 'k', label: '_key', grant: 'free' }),
      expect.objectContaining({ type: 'released', registration: 'stock', key: 'k', label: '_key' }),
    ]);
  });
});

describe('permits and shared locks', () => {
  const OF_PERMITS = { mode: 'permits', permits: 2 };

  it('events, messages and traces say how a lock is held, and nothing for an exclusive lock [G892]', async () => {
    const locks = await openLocks({ memory: true });
    const acquires = published<AcquireTrace>('nest-redis-lock:acquire');
    const holds = published<HoldTrace>('nest-redis-lock:hold');
    const messages = publishedEvents();
    const events = eventsOf(locks);
    const permits = await locks.acquirePermits('mail', { limit: 3, permits: 2 });
    expect(await locks.tryAcquirePermits('mail', { limit: 1 })).toBeNull();
    await permits.release();
    await locks.withPermits('mail', { limit: 3 }, nothing);
    await locks.withLock('report', { mode: 'shared' }, nothing);
    await locks.withLock('order', nothing);
    await until(() => messages.length === 9, { what: 'the events' });
    expect(events).toMatchObject([
      { type: 'acquired', key: 'mail', ...OF_PERMITS, fencingToken: undefined },
      { type: 'contended', key: 'mail', mode: 'permits', permits: 1 },
      { type: 'released', key: 'mail', ...OF_PERMITS },
      { type: 'acquired', key: 'mail', mode: 'permits', permits: 1 },
      { type: 'released', key: 'mail', mode: 'permits', permits: 1 },
      { type: 'acquired', key: 'report', mode: 'shared', fencingToken: expect.any(Number) as number },
      { type: 'released', key: 'report', mode: 'shared' },
      { type: 'acquired', key: 'order' },
      { type: 'released', key: 'order' },
    ]);
    const shown = (each: { key: string; mode?: unknown; permits?: unknown }) => [each.key, each.mode, each.permits];
    const [two, one] = [2, 1].map((count) => ['mail', 'permits', count]);
    const [report, order] = [
      ['report', 'shared', undefined],
      ['order', undefined, undefined],
    ];
    expect(messages.map(shown)).toEqual([two, one, two, one, one, report, report, order, order]);
    expect(acquires.of('start').map(shown)).toEqual([two, one, one, report, order]);
    expect(holds.of('start').map(shown)).toEqual([one, report, order]);
    const exclusive = [...events, ...messages, ...acquires.of('start'), ...holds.of('start')].filter(
      ({ key }) => key === 'order',
    );
    expect(exclusive).toHaveLength(6);
    for (const each of exclusive) {
      expect(Object.keys(each)).not.toContain('mode');
      expect(Object.keys(each)).not.toContain('permits');
    }
  });
});

describe('the option telemetry', () => {
  it('costs no lock and no result when it throws, and a warning says so once [G452]', async () => {
    const broken = () => {
      throw new Error('out of spans');
    };
    const run = <T>(work: () => T) => work();
    const ends = () => ({ run, end: broken });
    const others = { noted: broken, extended: broken, close: broken };
    const observer = { acquire: ends, hold: ends, ...others };
    const later = { acquire: broken, hold: broken, ...others };
    const locks = await openLocks({ memory: true, telemetry: { open: () => observer } });
    const warnings = warningsOf(locks);
    expect(await locks.withLock('k', async (lock) => (await lock.extend(), 'done'))).toBe('done');
    for (const fails of [broken, (work: () => unknown) => (work(), broken())]) {
      const runs = () => ({ run: fails, end: () => {} });
      Object.assign(observer, { acquire: runs, hold: runs });
      let calls = 0;
      expect(await locks.withLock('k', async () => ++calls)).toBe(1);
      expect([calls, locks.stats()]).toEqual([1, []]);
    }
    Object.assign(observer, later);
    expect(await locks.withLock('k', () => Promise.resolve('done'))).toBe('done');
    const unprintable = () => {
      throw Object.create(null);
    };
    const fails = { acquire: unprintable, hold: unprintable, noted: unprintable };
    const other = await openLocks({ memory: true, telemetry: { open: () => ({ ...observer, ...fails }) } });
    expect(await other.withLock('k', () => Promise.resolve('done'))).toBe('done');
    expect(other.stats()).toEqual([]);
    expect(locks.stats()).toEqual([]);
    expect(warnings).toEqual(['The telemetry of locks has failed, and may fail again: Error: out of spans.']);
    await locks.onApplicationShutdown();
  });

  it('makes no trace where nothing is subscribed [G453]', async () => {
    const locks = await openLocks({ memory: true });
    const made = [vi.spyOn(Telemetry.prototype, 'acquire'), vi.spyOn(Telemetry.prototype, 'hold')];
    onTestFinished(() => made.forEach((each) => each.mockRestore()));
    await locks.withLock('k', nothing);
    await locks.withLock(['k', 'l'], nothing);
    for (const each of made) expect(each).not.toHaveBeenCalled();
    published('nest-redis-lock:acquire');
    published('nest-redis-lock:hold');
    await locks.withLock('k', nothing);
    for (const each of made) expect(each).toHaveBeenCalledOnce();
  });
});
