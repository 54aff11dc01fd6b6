import type { AcquireOutcome, Claim, LockBackend } from '../backends/lock-backend.js';
import { LockContendedError, LockUnavailableError, NodeError } from '../errors.js';
import { validityMs } from '../lease/lease.js';
import { ownerSequence, parseOwner, type LockHolder } from '../owner.js';
import { BackOff } from './back-off.js';
import { LocalQueue } from './local-queue.js';
import type { Patience } from './patience.js';

/** A claim that was granted. Its holder has the turn in the local queue until it calls `leave`. */
export interface Grant {
  claim: Claim;
  fencingToken: number;
  sentAt: number;
}

/**
 * Waits for locks: in line within the process, and as one contender for all its calls in Redis, with a back-off.
 * The hand-off between processes takes the place of the back-off here.
 */
export class Contender {
  readonly #nextOwner = ownerSequence();
  readonly #queue = new LocalQueue();
  /** Attempts under way, those that nobody waits for any more included. */
  #attempts = 0;
  #whenSettled?: () => void;

  constructor(
    private readonly backend: LockBackend,
    private readonly guardMs: number,
    private readonly now: () => number,
    /** Who holds the key in this process. */
    private readonly localHolder: (key: string) => { holder: LockHolder; remainingMs: number } | undefined,
  ) {}

  /** How many keys are held or waited for in this process. */
  get size(): number {
    return this.#queue.size;
  }

  /** How many calls of this process wait for the key. */
  waiting(key: string): number {
    return this.#queue.waiting(key);
  }

  /** Gives the turn to the next call of this process: the lock has been, or is just being, given back. */
  leave(key: string): void {
    this.#queue.leave(key);
  }

  /** Waits for the attempts under way: each settles within its time limit. */
  async settled(): Promise<void> {
    if (this.#attempts > 0) await new Promise<void>((resolve) => (this.#whenSettled = resolve));
  }

  /**
   * @throws LockContendedError, LockUnavailableError, or what ends the patience
   */
  async acquire(key: string, ttlMs: number, patience: Patience): Promise<Grant> {
    if (!this.#queue.tryEnter(key)) await this.#waitForTurn(key, patience);
    let leaving: Promise<unknown> | undefined;
    try {
      return await this.#contend(key, ttlMs, patience, (abandoned) => (leaving = abandoned));
    } catch (error) {
      // The next one's attempt must not meet what is left of ours.
      if (leaving) void leaving.finally(() => this.leave(key));
      else this.leave(key);
      throw error;
    }
  }

  async #waitForTurn(key: string, patience: Patience): Promise<void> {
    const { turn, giveUp } = this.#queue.join(key);
    let hasTurn: true | undefined;
    try {
      hasTurn = await patience.race(
        turn.then(() => true as const),
        patience.remainingMs,
      );
    } finally {
      if (!hasTurn) giveUp();
    }
    if (hasTurn) return;
    const local = this.localHolder(key);
    throw new LockContendedError(key, patience.waitedMs, local?.holder, local?.remainingMs);
  }

  async #contend(
    key: string,
    ttlMs: number,
    patience: Patience,
    abandon: (cleanUp: Promise<unknown>) => void,
  ): Promise<Grant> {
    const backOff = new BackOff();
    for (;;) {
      const claim: Claim = { key, owner: this.#nextOwner(), ttlMs };
      const startedAt = this.now();
      const attempt = this.#attempt(claim);
      let outcome: AcquireOutcome | undefined;
      try {
        outcome = await patience.attempt(attempt, this.backend.attemptTimeoutMs(ttlMs));
      } catch (error) {
        abandon(this.#undoLate(claim, attempt));
        throw error;
      }
      if (outcome === undefined) {
        abandon(this.#undoLate(claim, attempt));
        const cause = new NodeError('Redis', `no answer within the ${Math.round(patience.waitedMs)} ms of waitMs`);
        throw LockUnavailableError.from('acquired', key, [cause]);
      }
      if (outcome.status === 'unavailable') throw LockUnavailableError.from('acquired', key, outcome.causes);
      const endedAt = this.now();
      let pauseMs: number;
      if (outcome.status === 'acquired') {
        const { fencingToken, sentAt } = outcome;
        if (endedAt < sentAt + validityMs(ttlMs, this.guardMs)) return { claim, fencingToken, sentAt };
        // Granted, but nothing is left of the lease: this process was paused, or Redis is slower than the ttl.
        void this.backend.release(claim);
        if (patience.remainingMs === 0) throw tooLate(key, ttlMs, endedAt - sentAt);
        pauseMs = 0;
      } else {
        if (patience.remainingMs === 0) throw contended(key, patience, outcome);
        pauseMs = backOff.next(outcome.remainingMs, endedAt - startedAt);
      }
      await patience.pause(pauseMs);
      if (patience.remainingMs > 0) continue;
      throw outcome.status === 'contended' ? contended(key, patience, outcome) : tooLate(key, ttlMs, patience.waitedMs);
    }
  }

  async #attempt(claim: Claim): Promise<AcquireOutcome> {
    this.#attempts++;
    const outcome = await this.backend.acquire(claim);
    this.#concluded();
    return outcome;
  }

  #concluded(): void {
    if (--this.#attempts === 0) this.#whenSettled?.();
  }

  /** An attempt that nobody waits for any more must not leave a lock behind. */
  async #undoLate(claim: Claim, attempt: Promise<AcquireOutcome>): Promise<void> {
    this.#attempts++;
    if ((await attempt).status === 'acquired') await this.backend.release(claim);
    this.#concluded();
  }
}

function contended(
  key: string,
  patience: Patience,
  { owner, remainingMs }: Extract<AcquireOutcome, { status: 'contended' }>,
): LockContendedError {
  return new LockContendedError(
    key,
    patience.waitedMs,
    owner === undefined ? undefined : parseOwner(owner),
    remainingMs,
  );
}

function tooLate(key: string, ttlMs: number, tookMs: number): LockUnavailableError {
  const cause = new NodeError(
    'Redis',
    `its answer took ${Math.round(tookMs)} ms, and the lease only runs for ${ttlMs} ms`,
  );
  return LockUnavailableError.from('acquired', key, [cause]);
}
