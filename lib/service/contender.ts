import type { AcquireOutcome, Claim, LockBackend } from '../backends/lock-backend.js';
import { LockContendedError, LockUnavailableError, NodeError } from '../errors.js';
import { validityMs } from '../lease/lease.js';
import { ownerSequence, parseOwner, type LockHolder } from '../owner.js';
import { BackOff } from './back-off.js';
import { LocalQueue, type Fault } from './local-queue.js';
import type { Patience } from './patience.js';
import type { UnderWay } from '../under-way.js';

/** A claim that was granted. Its holder has the turn in the local queue until it calls `leave`. */
export interface Grant {
  claim: Claim;
  fencingToken: number;
  sentAt: number;
}

/** What the contender needs of the world. */
export interface ContenderDuties {
  backend: LockBackend;
  guardMs: number;
  now: () => number;
  underWay: UnderWay;
  /** Who holds the key in this process. */
  localHolder: (key: string) => { holder: LockHolder; remainingMs: number } | undefined;
}

/** What was last heard of a lock that others hold. */
interface Sighting {
  holder?: LockHolder;
  /** When the holder's lease ends, if that is known. */
  endsAt?: number;
  /** When it was asked for again; undefined: it was answered since. */
  askedAt?: number;
}

/** How the turn of one call ended without a lock. */
interface Turn {
  fault?: Fault;
  /** What is left of its last attempt. */
  leftover?: Promise<Fault | undefined>;
}

/** An answer may take so long before what was last heard counts as out of date. */
const ANSWER_DUE_MS = 200;

/**
 * Waits for locks: in line within the process, and as one contender for all its calls in Redis, with a back-off.
 * The hand-off between processes takes the place of the back-off here.
 */
export class Contender {
  readonly #duties: ContenderDuties;
  readonly #nextOwner = ownerSequence();
  readonly #queue = new LocalQueue();
  readonly #sightings = new Map<string, Sighting>();
  /** Calls that try once, and wait for what the attempt under way finds. */
  readonly #curious = new Map<string, Set<() => void>>();

  constructor(duties: ContenderDuties) {
    this.#duties = duties;
  }

  /** How much it keeps: nothing unless keys are held or waited for in this process. */
  get size(): number {
    return this.#queue.size + this.#sightings.size + this.#curious.size;
  }

  /** How many calls of this process wait for the key. */
  waiting(key: string): number {
    const contends = this.#queue.has(key) && !this.#duties.localHolder(key);
    return this.#queue.waiting(key) + (contends ? 1 : 0);
  }

  /** Gives the turn to the next call of this process: the lock has been, or is just being, given back. */
  leave(key: string, fault?: Fault): void {
    if (this.#queue.leave(key, fault)) return;
    this.#sightings.delete(key);
    this.#curious.delete(key);
  }

  /**
   * @throws LockContendedError, LockUnavailableError, or what ends the patience
   */
  async acquire(key: string, ttlMs: number, patience: Patience): Promise<Grant> {
    if (!this.#queue.tryEnter(key)) await this.#waitForTurn(key, patience);
    const turn: Turn = {};
    try {
      const grant = await this.#contend(key, ttlMs, patience, turn);
      this.#sightings.delete(key);
      if (this.#curious.size > 0) this.#tell(key);
      return grant;
    } catch (error) {
      // The next one's attempt must not meet what is left of ours.
      const { fault, leftover } = turn;
      if (leftover) void leftover.then((late) => this.leave(key, late));
      else this.leave(key, fault);
      throw error;
    }
  }

  async #waitForTurn(key: string, patience: Patience): Promise<void> {
    const { turn, giveUp } = this.#queue.join(key);
    let word: { fault?: Fault } | undefined;
    try {
      const given = turn.then((fault) => ({ fault }));
      word = await (patience.triesOnce
        ? patience.race(Promise.race([given, this.#found(key)]), Infinity)
        : patience.race(given, patience.remainingMs));
    } finally {
      if (!word && !giveUp()) this.leave(key);
    }
    if (!word) throw this.#inVain(key, patience);
    const { fault } = word;
    // Who waited for all of a failed attempt need not make the same one again: else a queue would fail one by one.
    if (!fault || patience.startedAt > fault.attemptedAt) return;
    this.leave(key, fault);
    throw LockUnavailableError.from('acquired', key, fault.causes);
  }

  /** Resolves as soon as it is known that others hold the lock: at once, or when the attempt under way tells. */
  async #found(key: string): Promise<undefined> {
    if (this.#duties.localHolder(key) || this.#sightings.has(key)) return undefined;
    const calls = this.#curious.get(key) ?? new Set();
    this.#curious.set(key, calls);
    await new Promise<void>((resolve) => calls.add(resolve));
  }

  #tell(key: string): void {
    for (const tell of this.#curious.get(key) ?? []) tell();
    this.#curious.delete(key);
  }

  async #contend(key: string, ttlMs: number, patience: Patience, turn: Turn): Promise<Grant> {
    const { backend, guardMs, now } = this.#duties;
    const backOff = new BackOff();
    for (;;) {
      const claim: Claim = { key, owner: this.#nextOwner(), ttlMs };
      const attemptedAt = now();
      const sighting = this.#sightings.get(key);
      if (sighting) sighting.askedAt ??= attemptedAt;
      const attempt = backend.acquire(claim);
      let outcome: AcquireOutcome | undefined;
      try {
        outcome = await patience.attempt(attempt, backend.attemptTimeoutMs(ttlMs));
      } finally {
        if (!outcome) turn.leftover = this.#undo(claim, attempt, attemptedAt);
      }
      if (outcome === undefined) throw this.#inVain(key, patience);
      if (outcome.status === 'unavailable') {
        turn.fault = { causes: outcome.causes, attemptedAt };
        throw LockUnavailableError.from('acquired', key, outcome.causes);
      }
      const answeredAt = now();
      let pauseMs = 0;
      if (outcome.status === 'acquired') {
        const { fencingToken, sentAt } = outcome;
        if (answeredAt < sentAt + validityMs(ttlMs, guardMs)) return { claim, fencingToken, sentAt };
        // Granted, but nothing is left of the lease: this process was paused, or Redis is slower than the ttl.
        void this.#undo(claim, attempt, attemptedAt);
      } else {
        this.#sight(key, outcome, answeredAt);
        if (this.#curious.size > 0) this.#tell(key);
        pauseMs = backOff.next(outcome.remainingMs, answeredAt - attemptedAt);
      }
      if (patience.remainingMs > 0) await patience.pause(pauseMs);
      if (patience.remainingMs > 0) continue;
      throw outcome.status === 'acquired' ? tooLate(key, ttlMs, answeredAt - attemptedAt) : this.#inVain(key, patience);
    }
  }

  /** An attempt that nobody waits for any more must not leave a lock behind. */
  async #undo(claim: Claim, attempt: Promise<AcquireOutcome>, attemptedAt: number): Promise<Fault | undefined> {
    const { backend, underWay } = this.#duties;
    underWay.begin();
    try {
      const outcome = await attempt;
      if (outcome.status === 'acquired') await backend.release(claim);
      return outcome.status === 'unavailable' ? { causes: outcome.causes, attemptedAt } : undefined;
    } finally {
      underWay.end();
    }
  }

  #sight(key: string, refusal: Extract<AcquireOutcome, { status: 'contended' }>, at: number): void {
    const { owner, remainingMs } = refusal;
    this.#sightings.set(key, {
      holder: owner === undefined ? undefined : parseOwner(owner),
      endsAt: remainingMs === undefined ? undefined : at + remainingMs,
    });
  }

  /** Who waited in vain is told what is known: who holds the lock, or that Redis owes an answer. */
  #inVain(key: string, patience: Patience): LockContendedError | LockUnavailableError {
    const { now, localHolder } = this.#duties;
    const local = localHolder(key);
    if (local) return new LockContendedError(key, patience.waitedMs, local.holder, local.remainingMs);
    const sighting = this.#sightings.get(key);
    const unansweredMs = sighting ? now() - (sighting.askedAt ?? now()) : patience.waitedMs;
    if (sighting ? unansweredMs < ANSWER_DUE_MS : patience.triesOnce) {
      const { holder, endsAt } = sighting ?? {};
      const remainingMs = endsAt === undefined ? undefined : Math.max(0, endsAt - now());
      return new LockContendedError(key, patience.waitedMs, holder, remainingMs);
    }
    const cause = new NodeError('Redis', `no answer for ${Math.round(unansweredMs)} ms, and waitMs is over`);
    return LockUnavailableError.from('acquired', key, [cause]);
  }
}

function tooLate(key: string, ttlMs: number, tookMs: number): LockUnavailableError {
  const cause = new NodeError(
    'Redis',
    `its answer took ${Math.round(tookMs)} ms, and the lease only runs for ${ttlMs} ms`,
  );
  return LockUnavailableError.from('acquired', key, [cause]);
}
