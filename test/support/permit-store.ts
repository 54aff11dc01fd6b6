import type { AcquireOutcome, AcquireRequest, Grant, LockBackend } from '../../lib/core/backend/lock-backend.js';
import { NodeError } from '../../lib/api/errors.js';

/** Permits in this process: each key has `limit` of them. It has no queue, and mints no tokens. */
export function permitStore(limit: number) {
  const holders = new Map<string, Set<string>>();
  const of = (key: string) => holders.get(key) ?? holders.set(key, new Set()).get(key)!;
  const state = {
    /** Attempts in flight: an attempt is answered when all before it are, unless `hold` keeps them. */
    asking: 0,
    /** The largest number of attempts that were in flight together. */
    mostAsking: 0,
    /** Of all attempts, each once. */
    attempts: 0,
    holders: (key: string) => of(key).size,
    isDown: false,
    hold: Promise.resolve(),
  };
  const answer = ({ key, owner }: AcquireRequest): AcquireOutcome => {
    const taken = of(key);
    if (state.isDown) return { status: 'unavailable', causes: [new NodeError('permits', 'down')] };
    if (taken.size >= limit) return { status: 'contended', owner: [...taken][0], remainingMs: 20_000, queued: false };
    taken.add(owner);
    return { status: 'acquired', grant: { key, owner }, sentAt: performance.now() };
  };
  const backend = {
    attemptTimeoutMs: () => 1_000,
    acquire(request, done) {
      state.attempts++;
      state.mostAsking = Math.max(state.mostAsking, ++state.asking);
      void state.hold.then(() => {
        state.asking--;
        done(answer(request));
      });
    },
    extend: (_request, done) => void Promise.resolve().then(() => done({ status: 'lost', reason: 'expired' })),
    release({ key, owner }: Grant, done) {
      const wasHeld = of(key).delete(owner);
      void Promise.resolve().then(() => done({ status: wasHeld ? 'released' : 'gone' }));
    },
    forceRelease: async (key) => {
      const from = [...of(key)];
      of(key).clear();
      return from.length > 0 ? { from } : undefined;
    },
    problems: () => [],
  } as Partial<LockBackend> as LockBackend;
  return { backend, state };
}
