// A separate process whose calls ask again at once, whatever they get; careless-loops.real.test.ts starts it.
import { load, serve, settings } from '../support/serve-duties.mjs';

const { openLocks } = await load('compose/open-locks.js');
const { service: locks } = await openLocks(settings);
let run;

/** The calls that it repeats. */
const CALLS = {
  acquire: () => locks.acquire('free'),
  'acquire with a short waitMs': () => locks.acquire('free', { waitMs: 5 }),
  tryAcquire: () => locks.tryAcquire('held'),
  withLock: () => locks.withLock('held', { waitMs: 0 }, () => {}),
  'a bad key': () => locks.acquire(''),
  'bad options': () => locks.acquire('free', { ttlMs: 'soon' }),
  'no work': () => locks.withLock('free', 'no function'),
  'an aborted signal': () => locks.acquire('free', { signal: AbortSignal.abort() }),
  'a lock of its own': () => run(() => locks.acquire('held', { reentrant: false })),
  inspect: () => locks.inspect('free'),
  isLocked: () => locks.isLocked(''),
  forceRelease: () => locks.forceRelease('free'),
};

const duties = {
  /** Holds the lock, and lets other calls run under it. */
  hold: () =>
    new Promise((resolve) => {
      void locks.withLock('held', async () => {
        const { AsyncResource } = await import('node:async_hooks');
        const resource = new AsyncResource('holder');
        run = (work) => resource.runInAsyncScope(work);
        resolve();
        await new Promise(() => {});
      });
    }),
  /**
   * Asks for `ms`, by a timer that only fires if the event loop runs, and at least twice; a granted call ends the loop.
   */
  async loop(name, ms) {
    const startedAt = performance.now();
    let isOver = false;
    setTimeout(() => (isOver = true), ms);
    let calls = 0;
    let granted = false;
    while (!(isOver && calls > 1) && !granted) {
      calls++;
      try {
        granted = Boolean(await CALLS[name]());
      } catch {
        // And again.
      }
    }
    return { calls, granted, tookMs: performance.now() - startedAt };
  },
};

serve(duties);
