import { Subject as Stream } from 'rxjs';
import { afterEach, beforeEach, describe, expect, it, vi } from 'vitest';
import type { ExtendOutcome, LockBackend, ReleaseOutcome } from 'nest-redis-lock/testing';
import { type LockEvent, NodeError } from 'nest-redis-lock';
import type { Lease } from '../../lib/core/lease/lease.js';
import { Leases } from '../../lib/core/lease/leases.js';
import { LockHandle } from '../../lib/core/lease/lock-handle.js';
import { loopTurn } from '../../lib/core/time/event-loop.js';
import { validityMs } from '../../lib/core/time/clock.js';
import { randomOf } from '../support/random.js';

const SEEDS = Number(process.env['LEASE_SEEDS'] ?? 300);
const FIRST_SEED = Number(process.env['LEASE_FIRST_SEED'] ?? 1);
const STEPS = 80;
const TTLS_MS = [1_000, 1_400, 5_000, 30_000];

beforeEach(() => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout', 'Date'], now: 0 });
});
afterEach(() => {
  vi.useRealTimers();
});

/** What the test knows of one lease, from what was granted and answered alone. */
interface Subject {
  lease: Lease;
  handle: LockHandle;
  signal: AbortSignal;
  /** It cannot be held from here on. */
  until: number;
  /** Extensions that were sent and not answered. */
  unanswered: { ttlMs: number; sentAt: number; done: (outcome: ExtendOutcome) => void }[];
  /** It was said to be lost: by an answer, by force, or by the shutdown. */
  toldLost: boolean;
  isOver: boolean;
  isReleased: boolean;
  lossesToListener: number;
  lossEvents: number;
  releasesAfterwards: number;
}

/** Leases, and everybody who may do something to them, at random. */
class World {
  readonly subjects = new Map<string, Subject>();
  /** What may not be. */
  readonly violations: string[] = [];
  readonly #random: () => number;
  readonly #marginMs: number;
  readonly #leases: Leases;
  readonly #settling: Promise<unknown>[] = [];
  /** By how much the clock is ahead of the timers: pauses of the process. */
  #pausedMs = 0;
  /** How often anything was sent, emitted, or handed to the listener. */
  #consequences = 0;
  #step = '';

  constructor(seed: number) {
    this.#random = randomOf(seed);
    this.#marginMs = this.#pick([0, 0, 300]);
    const backend: Partial<LockBackend> = {
      extend: ({ grant, ttlMs }, done) => {
        this.#consequences++;
        const subject = this.subjects.get(grant.key);
        if (!subject) this.#early.set(grant.key, { ttlMs, sentAt: this.#now(), done });
        else this.#sent(subject, { ttlMs, sentAt: this.#now(), done });
      },
      release: ({ key }) => {
        this.#consequences++;
        const subject = this.subjects.get(key)!;
        subject.releasesAfterwards++;
        if (subject.isReleased) this.#violated(subject, 'was released again after its release');
      },
    };
    const events = new Stream<LockEvent>();
    events.subscribe((event) => this.#noteEvent(event));
    this.#leases = new Leases({
      backend: backend as LockBackend,
      marginMs: this.#marginMs,
      now: () => this.#now(),
      events,
      nextOwner: () => 'next',
    });
    this.#leases.listener = {
      giveBack: ({ key }, done) => this.#gaveBack(this.subjects.get(key)!, done),
      onLost: ({ key }) => {
        this.#consequences++;
        this.subjects.get(key)!.lossesToListener++;
      },
      onBegun: () => {},
      waitingBehind: () => 0,
    };
  }

  async run(): Promise<void> {
    const steps: [name: string, weight: number, run: () => unknown][] = [
      ['grant', 4, () => this.#grant()],
      ['ask', 4, () => this.#askOne()],
      ['answer', 8, () => this.#answerOne()],
      ['pass', 8, () => vi.advanceTimersByTimeAsync(this.#pick([1, 30, 200, 700, 3_000]))],
      ['pause', 2, () => (this.#pausedMs += this.#pick([5, 300, 900, 2_000, 20_000]))],
      ['turn of the event loop', 2, loopTurn],
      ['release', 2, () => this.#withOne(({ handle }) => this.#settling.push(handle.release()))],
      ['nest', 1, () => this.#withOne((subject) => this.#nest(subject))],
      ['extend', 2, () => this.#withOne((subject) => this.#extend(subject))],
      ['check', 1, () => this.#withOne(({ lease }) => this.#leases.check(lease))],
      ['force', 1, () => this.#withOne((subject) => this.#force(subject))],
    ];
    const all = steps.flatMap(([name, weight, run]) => Array.from({ length: weight }, () => ({ name, run })));
    for (let step = 0; step < STEPS; step++) {
      const { name, run } = this.#pick(all);
      this.#step = `${step} ${name}`;
      await run();
      if (this.#random() < 0.5) await this.#settle(); // else the next step comes in the same line
    }
    await this.#end();
  }

  async #settle(): Promise<void> {
    for (let turn = 0; turn < 12; turn++) await undefined;
    for (const subject of this.subjects.values()) this.#inspect(subject);
  }

  /** Whatever is between two steps: found out without asking. */
  #inspect(subject: Subject): void {
    const { lease, signal, isOver, isReleased } = subject;
    if ((isOver || isReleased) && lease.list) this.#violated(subject, 'ended, and is watched');
    if (!isOver && !isReleased && !lease.list) this.#violated(subject, 'goes on, and is not watched');
    if (signal.aborted !== isOver) this.#violated(subject, 'its signal does not say whether it is lost');
    if (isOver && isReleased) this.#violated(subject, 'both lost and released');
    const losses = isOver ? 1 : 0;
    if (subject.lossesToListener !== losses) this.#violated(subject, `${subject.lossesToListener} losses reported`);
    if (subject.lossEvents !== losses) this.#violated(subject, `${subject.lossEvents} events of its loss`);
    if (subject.unanswered.length > 1) this.#violated(subject, 'two extensions are under way');
  }

  /** Nothing is done to any lease any more: with time each ends, and whoever waits for something is served. */
  async #end(): Promise<void> {
    this.#step = 'end';
    const withoutAnswers = this.#random() < 0.3; // of those who are extended, while the process is up
    for (let round = 0; round < 40 && !withoutAnswers; round++) {
      for (const subject of this.subjects.values()) this.#answer(subject);
      await vi.advanceTimersByTimeAsync(100);
      await loopTurn();
    }
    await this.#settle();
    if (this.#random() < 0.3) {
      for (const subject of this.subjects.values()) subject.toldLost = true;
      this.#leases.end();
      for (const subject of this.subjects.values()) {
        if (subject.lease.checkAlive()) this.#violated(subject, 'is held after the end');
        if (!subject.isReleased && subject.releasesAfterwards !== 1 && subject.signal.reason?.reason !== 'stolen')
          this.#violated(subject, 'was not released at the end');
      }
    }
    await vi.advanceTimersByTimeAsync(2 * Math.max(...TTLS_MS));
    await loopTurn();
    await vi.advanceTimersByTimeAsync(1_000);
    await this.#settle();
    for (const subject of this.subjects.values()) {
      const { lease } = subject;
      if (lease.checkAlive()) this.#violated(subject, `is still ${lease.checkState()}, and nothing was answered`);
      if (subject.isOver && subject.signal.reason.reason !== 'stolen' && subject.releasesAfterwards !== 1)
        this.#violated(subject, `${subject.releasesAfterwards} releases after its loss`);
      for (const { done } of subject.unanswered.splice(0)) done({ status: 'extended', sentAt: this.#now() });
      if (lease.checkAlive()) this.#violated(subject, 'came back to life');
    }
    await this.#settle();
    if (this.#leases.size > 0) this.violations.push(`${this.#leases.size} leases are kept in the end`);
    await Promise.all(this.#settling);
  }

  #grant(): void {
    const key = `lease ${this.subjects.size}`;
    const autoExtend = this.#random() < 0.8;
    const isProvisional = autoExtend && this.#random() < 0.4;
    const ttlMs = isProvisional ? 2_000 : this.#pick(TTLS_MS);
    const sentAt = this.#now() - this.#pick([0, 0, 50, 400]);
    const extendTo = isProvisional ? this.#pick(TTLS_MS) : undefined;
    const lease = this.#leases.add({ key, owner: key }, 1, ttlMs, sentAt, autoExtend, extendTo);
    const subject: Subject = {
      lease,
      handle: new LockHandle(lease, this.#leases),
      signal: new AbortController().signal,
      until: sentAt + validityMs(ttlMs, this.#marginMs),
      unanswered: [],
      toldLost: false,
      isOver: false,
      isReleased: false,
      lossesToListener: 0,
      lossEvents: 0,
      releasesAfterwards: 0,
    };
    this.subjects.set(key, subject);
    const early = this.#early.get(key);
    if (early) this.#sent(subject, early);
    subject.signal = lease.checkSignal();
    if (subject.signal.aborted) this.#over(subject);
    else subject.signal.addEventListener('abort', () => this.#over(subject));
  }

  /** Extensions that were sent before the call that adds the lease had returned. */
  readonly #early = new Map<string, Subject['unanswered'][number]>();

  #sent(subject: Subject, extension: Subject['unanswered'][number]): void {
    if (subject.isOver) this.#violated(subject, 'is extended after its loss');
    if (subject.isReleased) this.#violated(subject, 'is extended after its release');
    subject.unanswered.push(extension);
    // It may run and its answer be lost: then the shorter lease is what counts.
    subject.until = Math.min(subject.until, extension.sentAt + validityMs(extension.ttlMs, this.#marginMs));
  }

  #over(subject: Subject): void {
    if (subject.isOver) this.#violated(subject, 'was lost twice');
    subject.isOver = true;
    if (!subject.toldLost && this.#now() < subject.until) this.#violated(subject, 'was lost before its time');
  }

  #askOne(): void {
    this.#withOne((subject) => {
      const { handle, lease } = subject;
      const before = this.#consequences;
      const ask = this.#pick<() => unknown>([
        () => handle.isHeld,
        () => handle.remainingMs,
        () => handle.signal,
        () => lease.checkState(),
        () => lease.checkLost(),
        () => lease.checkAlive(),
      ]);
      ask();
      if (this.#consequences !== before) this.#violated(subject, 'was asked, and that had consequences in that line');
      const now = this.#now();
      if (lease.checkHeld() && now >= subject.until) this.#violated(subject, 'is held after its deadline');
      if (lease.checkHeld() && subject.isReleased) this.#violated(subject, 'is held after its release');
      if (lease.checkRemainingMs() > Math.max(0, subject.until - now)) this.#violated(subject, 'remains for too long');
      if (lease.checkState() === 'lost' && !subject.signal.aborted)
        this.#violated(subject, 'is lost, and not aborted in that line');
      if (lease.checkState() === 'unknown' && now < subject.until)
        this.#violated(subject, 'is unknown before its deadline');
    });
  }

  #answerOne(): void {
    const waiting = [...this.subjects.values()].filter(({ unanswered }) => unanswered.length > 0);
    if (waiting.length > 0) this.#answer(this.#pick(waiting));
  }

  #answer(subject: Subject): void {
    const extension = subject.unanswered.shift();
    if (!extension) return;
    const { ttlMs, sentAt, done } = extension;
    const hasEnded = subject.isOver || subject.isReleased;
    const luck = this.#random();
    if (luck < 0.6) {
      if (!hasEnded) subject.until = sentAt + validityMs(ttlMs, this.#marginMs);
      done({ status: 'extended', sentAt });
    } else if (luck < 0.85) {
      if (!hasEnded && this.#now() >= subject.until) subject.toldLost = true; // it was unknown, perhaps
      done({ status: 'unavailable', causes: [new NodeError('somewhere', 'down')] });
    } else {
      subject.toldLost = true;
      done({ status: 'lost', reason: this.#random() < 0.5 ? 'expired' : 'stolen' });
      if (!hasEnded && !subject.isOver) this.#violated(subject, 'goes on after an answer that it is lost');
    }
    if (hasEnded && subject.lease.checkAlive()) this.#violated(subject, 'was brought back by a late answer');
  }

  #extend({ handle }: Subject): void {
    this.#settling.push(handle.extend(this.#pick(TTLS_MS)).catch(() => {}));
  }

  #nest({ lease }: Subject): void {
    if (!lease.checkHeld()) return;
    const nested = LockHandle.another(lease, this.#leases);
    this.#settling.push(nested.release());
  }

  #force(subject: Subject): void {
    subject.toldLost = true;
    this.#leases.lose(subject.lease, this.#pick(['expired', 'stolen'] as const));
    if (subject.lease.checkAlive()) this.#violated(subject, 'is held after it was taken by force');
  }

  #gaveBack(subject: Subject, done: (outcome: ReleaseOutcome) => void): boolean {
    this.#consequences++;
    if (subject.isReleased) this.#violated(subject, 'was given back twice');
    if (subject.isOver) this.#violated(subject, 'was given back after its loss');
    subject.isReleased = true;
    const outcome: ReleaseOutcome =
      this.#random() < 0.8 ? { status: 'released' } : { status: 'unavailable', causes: [] };
    void loopTurn().then(() => done(outcome));
    return this.#random() < 0.2;
  }

  #noteEvent(event: LockEvent): void {
    this.#consequences++;
    if (event.type === 'lost') this.subjects.get(event.key)!.lossEvents++;
  }

  #withOne(run: (subject: Subject) => unknown): void {
    const subjects = [...this.subjects.values()].slice(-6); // those before have mostly ended
    if (subjects.length > 0) run(this.#pick(subjects));
  }

  #pick<T>(choices: readonly T[]): T {
    return choices[Math.floor(this.#random() * choices.length)]!;
  }

  #now(): number {
    return Date.now() + this.#pausedMs;
  }

  #violated({ lease }: Subject, what: string): void {
    this.violations.push(`step ${this.#step}: ${lease.key} ${what}`);
  }
}

describe('leases under random schedules', () => {
  it(`keep their promises in ${SEEDS} of them`, { timeout: 10_000 + SEEDS * 100 }, async () => {
    const broken: string[] = [];
    for (let seed = FIRST_SEED; seed < FIRST_SEED + SEEDS && broken.length < 20; seed++) {
      const world = new World(seed);
      await world.run();
      broken.push(...world.violations.map((violation) => `seed ${seed}, ${violation}`));
      vi.clearAllTimers();
    }
    expect(broken).toEqual([]);
  });
});
