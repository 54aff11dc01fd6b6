import { expect, it } from 'vitest';
import type {
  AcquireOutcome,
  AcquireRequest,
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
  const controller = new AbortController();
  const { signal } = controller;
  const calls = [1, 2].map(() => locks.acquire('key', { waitMs: 600_000, signal }).catch(() => {}));
  const place = () => asked.at(-1)!.place;
  await until(() => place() !== undefined && refused === asked.length, { what: 'they have a place, and rest' });
  const before = asked.length;
  listener!.onTurn(place()!.ticket);
  expect(asked.length).toBe(before);
  await until(() => asked.length > before, { what: 'their pause is over' });
  controller.abort('the test is over');
  await Promise.all(calls);
});

it('a lock that may have been detached is free at once, though the store detaches it after it was given back', async () => {
  let runLate!: () => Promise<unknown>;
  class Unsure extends MemoryBackend {
    override async transfer(request: Transfer): Promise<TransferOutcome> {
      runLate = () => super.transfer(request);
      return { status: 'unavailable', causes: [], mayHaveRun: true };
    }
  }
  const locks = serviceOn(new Unsure(now));
  const lock = await locks.acquire('key');
  const uncertain = 'The lock may have been detached, so this call has lost it.';
  await expect(lock.detach({ ttlMs: 60_000 })).rejects.toThrow(uncertain);
  await runLate();
  expect(await locks.isLocked('key')).toBe(false);
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
