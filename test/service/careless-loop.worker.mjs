// A process of its own whose calls ask again at once, whatever they get: started by careless-loops.real.test.ts.
import { load, serve, settings } from '../support/serve-duties.mjs';

const { openLocks } = await load('compose/open-locks.js');
const { service: locks } = await openLocks(settings);
let run;

/** What is asked for, again and again. */
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
  /** Holds the lock, and lets others run under it. */
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
   * Asks for `ms`, by a timer that only comes when the event loop runs, and twice at least; a call that is granted something ends
   * the loop.
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
