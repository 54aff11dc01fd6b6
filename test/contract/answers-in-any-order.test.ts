import { expect, it } from 'vitest';
import type {
  AcquireOutcome,
  AcquireRequest,
  ExtendOutcome,
  ExtendRequest,
  Transfer,
  TransferOutcome,
  WaitListener,
} from '../../lib/testing/index.js';
import { MemoryBackend } from '../../lib/stores/memory/memory.backend.js';
import { now } from '../support/claims.js';
import { serviceOn } from '../support/open-locks.js';
import { until } from '../support/until.js';
import { QueuedMemory } from './queued-memory.js';

it('a call whose turn comes before the refusal that put it into the queue asks again at once', async () => {
  class LateRefusals extends QueuedMemory {
    override acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
      super.acquire(request, (outcome) => {
        if (outcome.status === 'contended' && request.place) setTimeout(() => done(outcome), 200);
        else done(outcome);
      });
    }
  }
  const backend = new LateRefusals(now);
  const locks = serviceOn(backend);
  const holder = await locks.acquire('key');
  const others = serviceOn(backend);
  // A check would come after a second.
  const waiting = others.acquire('key', { waitMs: 700 });
  await until(() => backend.placesBefore('key').length === 1, { what: 'it is in the queue' });
  await holder.release();
  await (await waiting).release();
});

it('calls that have tied for a lock ask again after a random pause, not when a message announces their turn', async () => {
  const asked: AcquireRequest[] = [];
  let refused = 0;
  let listener: WaitListener | undefined;
  class Tied extends MemoryBackend {
    override readonly waitQueue = {
      handsOver: false,
      isListening: () => listener !== undefined,
      listen: (_key: string, listening: WaitListener) => void (listener = listening),
      checkListening: () => {},
      leave: () => {},
    };

    override acquire(request: AcquireRequest, done: (outcome: AcquireOutcome) => void): void {
      asked.push(request);
      setTimeout(() => {
        done({ status: 'contended', queued: request.place !== undefined });
        refused++;
      }, 50);
    }
  }
  const locks = serviceOn(new Tied(now));
  const { signal, abort } = abortable();
  const calls = [1, 2].map(() => locks.acquire('key', { waitMs: 600_000, signal }).catch(() => {}));
  const place = () => asked.at(-1)!.place;
  await until(() => place() !== undefined && refused === asked.length, { what: 'they have a place, and rest' });
  const before = asked.length;
  listener!.onTurn(place()!.ticket);
  expect(asked.length).toBe(before);
  await until(() => asked.length > before, { what: 'their pause is over' });
  abort();
  await Promise.all(calls);
});

it.each(['before it is given back', 'after it was given back'])(
  'a lock that may have been detached is free at once, though the store has detached it %s',
  async (when) => {
    let runLate: (() => Promise<unknown>) | undefined;
    class Unsure extends MemoryBackend {
      override async transfer(request: Transfer): Promise<TransferOutcome> {
        runLate = () => super.transfer(request);
        if (when === 'before it is given back') await runLate();
        return { status: 'unavailable', causes: [], mayHaveRun: true };
      }
    }
    const locks = serviceOn(new Unsure(now));
    const lock = await locks.acquire('key');
    await expect(lock.detach({ ttlMs: 60_000 })).rejects.toThrow(
      'The lock may have been detached, so this call has lost it.',
    );
    if (when === 'after it was given back') await runLate!();
    expect(await locks.isLocked('key')).toBe(false);
  },
);

it('a lock lasts no longer than its own ttl after a nested call gave up, although the store had applied its holdMs', async () => {
  let isSilent = true;
  class Silent extends MemoryBackend {
    override extend(request: ExtendRequest, done: (outcome: ExtendOutcome) => void): void {
      const isAnswered = !isSilent;
      isSilent = false;
      super.extend(request, (outcome) => done(isAnswered ? outcome : { status: 'unavailable', causes: [] }));
    }
  }
  const locks = serviceOn(new Silent(now));
  await locks.withLock('key', { watchdog: false, ttlMs: 60_000 }, async () => {
    await expect(locks.acquire('key', { holdMs: 3_600_000 })).rejects.toThrow('could not be kept');
    const remainingMs = async () => (await locks.inspect('key'))!.remainingMs;
    await until(async () => (await remainingMs()) <= 60_000, { what: 'it lasts no longer than its ttl' });
  });
});

it('an application closes though its store never says that it has closed, and gets an error about that [G1070]', async () => {
  const backend = new MemoryBackend(now);
  backend.close = () => new Promise(() => {});
  const limitMs = 10_000 + 5 * backend.attemptTimeoutMs();
  const locks = serviceOn(backend);
  let isComplete = false;
  locks.events$.subscribe({ complete: () => (isComplete = true) });
  await expect(locks.onApplicationShutdown()).rejects.toThrow(`the store: it has not closed within ${limitMs} ms`);
  expect(isComplete).toBe(true);
  locks.onApplicationShutdown = async () => {}; // it has closed
});

function abortable() {
  const controller = new AbortController();
  return { signal: controller.signal, abort: () => controller.abort('the test is over') };
}
