import { AsyncLocalStorage, AsyncResource } from 'node:async_hooks';
import { Heap } from './heap.js';
import type { Scheduler } from './scheduler.js';

/** Runs in no async context. */
const outsideOfAll = AsyncLocalStorage.snapshot();

/** The longest time of a timer of Node.js, in milliseconds: beyond it a timer fires at once. */
const LONGEST_TIMER_MS = 2 ** 31 - 1;

type Callback = (...args: never[]) => void;

/** What `setTimeout`, `setInterval` and `setImmediate` return. */
export class SimulatedTimer {
  /** When it fires, by the monotonic clock in whole milliseconds. */
  dueMs = 0;
  /** Among timers of the same time, the order in which they were set. */
  order = 0;
  isLive = true;
  #hasRef = true;
  readonly #context = new AsyncResource('SimulatedTimer', { requireManualDestroy: true });

  constructor(
    private readonly process: SimulatedProcess,
    private readonly callback: Callback,
    private readonly args: readonly unknown[],
    readonly ms: number,
    readonly repeats: boolean,
  ) {}

  run(): void {
    this.#context.runInAsyncScope(this.callback as (...args: unknown[]) => void, undefined, ...this.args);
  }

  ref(): this {
    this.#hasRef = true;
    return this;
  }

  unref(): this {
    this.#hasRef = false;
    return this;
  }

  hasRef(): boolean {
    return this.#hasRef;
  }

  refresh(): this {
    if (this.isLive) this.process.arm(this);
    return this;
  }

  close(): this {
    this.isLive = false;
    return this;
  }
}

interface Armed {
  readonly timer: SimulatedTimer;
  readonly dueMs: number;
  readonly order: number;
}

export interface ProcessOptions {
  /** The wall clock when it starts, in microseconds since 1970. */
  readonly wallUs?: number;
  /** The rate of its clocks: at 1.001 they gain a millisecond a second. */
  readonly rate?: number;
  /** How long a callback takes, in microseconds: at least, and less than. */
  readonly callbackUs?: readonly [least: number, below: number];
  /**
   * Called with an error that a callback has thrown. By default it is thrown again, outside of the callback, as in
   * Node.js.
   */
  readonly onUncaught?: (error: unknown) => void;
  /** Called before each callback; only that code runs until the next step. */
  readonly onCallback?: () => void;
}

/** Wall clocks show this time when a simulation begins, in microseconds since 1970. */
export const EPOCH_US = 1_700_000_000_000_000;

/**
 * A process of Node.js in simulated time: its clocks, and its event loop in the phases timers, input, immediates. A
 * callback takes some microseconds. Events wait while its loop is busy, or while it is paused.
 */
export class SimulatedProcess {
  readonly #timers = new Heap<Armed>((a, b) => a.dueMs < b.dueMs || (a.dueMs === b.dueMs && a.order < b.order));
  readonly #callbackUs: () => number;
  #immediates: SimulatedTimer[] = [];
  #input: (() => void)[] = [];
  #order = 0;
  /** The duration of the turn so far; undefined between turns. */
  #spentUs?: number;
  /** The end of the last turn, and of what was done between turns. */
  #freeAt = 0;
  /** The time of the loop, as its timers see it: it is read once in each phase. */
  #loopMs = 0;
  #wake?: { readonly at: number };
  /** The number of pauses that have not ended. */
  #pauses = 0;
  #pausedAt = 0;
  #isDead = false;
  readonly #rate: number;
  readonly #bornAt: number;
  readonly #onUncaught: (error: unknown) => void;
  readonly #onCallback?: () => void;
  #suspensions = 0;
  #suspendedAt = 0;
  /** How long its monotonic clock has stood still. */
  #suspendedUs = 0;
  /** Whether it has slept, and not read its wall clock since. */
  #hasSlept = false;
  /** Whether its wall clock was set back, and it has not read it since. */
  #isSetBack = false;
  /** How far its wall clock is ahead of its monotonic clock. */
  #wallUs: number;
  /** `performance.timeOrigin` */
  readonly originMs: number;

  constructor(
    private readonly scheduler: Scheduler,
    readonly name: string,
    {
      wallUs = EPOCH_US + scheduler.now,
      rate = 1,
      callbackUs: [least, below] = [3, 12],
      onUncaught = throwOutside,
      onCallback,
    }: ProcessOptions = {},
  ) {
    const random = scheduler.stream(`callbacks of ${name}`);
    this.#callbackUs = () => least + Math.floor(random() * (below - least));
    this.#wallUs = wallUs;
    this.originMs = wallUs / 1_000;
    this.#bornAt = scheduler.now;
    this.#rate = rate;
    this.#onUncaught = onUncaught;
    this.#onCallback = onCallback;
  }

  /** The time within the simulation that its code has reached, in microseconds. */
  get now(): number {
    const { now } = this.scheduler;
    return this.#spentUs === undefined ? Math.max(now, this.#freeAt) : now + this.#spentUs;
  }

  get isDead(): boolean {
    return this.#isDead;
  }

  get isPaused(): boolean {
    return this.#pauses > 0;
  }

  /** `performance.now()`. Reading a clock takes a microsecond, so that a loop that waits for it ends. */
  monotonicMs(): number {
    this.#spend(1);
    return this.#monotonicUs() / 1_000;
  }

  /** `Date.now()` */
  wallMs(): number {
    this.#spend(1);
    this.#hasSlept = false;
    this.#isSetBack = false;
    return Math.floor((this.#wallUs + this.#monotonicUs()) / 1_000);
  }

  /** The duration of this many milliseconds of its clocks within the simulation. */
  trueMs(ms: number): number {
    return ms / this.#rate;
  }

  /** Like SIGSTOP: nothing runs until it was resumed as often as paused. */
  pause(): void {
    if (this.#pauses++ === 0) this.#pausedAt = this.scheduler.now;
  }

  resume(): void {
    if (this.#pauses === 0 || --this.#pauses > 0) return;
    // The interrupted code continues.
    if (this.#freeAt > this.#pausedAt) this.#freeAt += this.scheduler.now - this.#pausedAt;
    this.#planTurn();
  }

  /** Blocks its event loop, like work that takes this long. */
  block(us: number): void {
    this.#freeAt = this.now + us;
  }

  /** Like kill -9: none of its code runs any more. */
  kill(): void {
    this.#isDead = true;
    this.#input = [];
    this.#immediates = [];
  }

  /**
   * Its machine sleeps: the process does not run, its monotonic clock stands still, and its wall clock runs on. The
   * process is only paused if a wall clock that was just set back would hide the sleep from it.
   */
  suspend(us: number): void {
    this.pause();
    if (this.#isSetBack) {
      this.scheduler.after(us, () => this.resume());
      return;
    }
    if (this.#suspensions++ === 0) this.#suspendedAt = this.scheduler.now;
    this.scheduler.after(us, () => {
      if (--this.#suspensions === 0) {
        const sleptUs = this.scheduler.now - this.#suspendedAt;
        this.#suspendedUs += sleptUs;
        this.#wallUs += sleptUs * this.#rate;
        this.#hasSlept = true;
      }
      this.resume();
    });
  }

  /** Somebody sets its wall clock ahead, or back; not back if that would hide a sleep from the process. */
  jumpWall(us: number): void {
    if (us < 0 && (this.#hasSlept || this.#suspensions > 0)) return;
    if (us < 0) this.#isSetBack = true;
    this.#wallUs += us;
  }

  setTimeout(callback: Callback, ms: unknown, args: readonly unknown[], repeats = false): SimulatedTimer {
    const timer = new SimulatedTimer(this, callback, args, timerMs(ms), repeats);
    this.arm(timer);
    return timer;
  }

  setImmediate(callback: Callback, args: readonly unknown[]): SimulatedTimer {
    const immediate = new SimulatedTimer(this, callback, args, 0, false);
    this.#immediates.push(immediate);
    this.#planTurn();
    return immediate;
  }

  /** The number of timers and immediates that keep it from ending by itself. */
  get pending(): number {
    const timers = this.#timers.items.filter((armed) => isDue(armed)).map(({ timer }) => timer);
    return [...timers, ...this.#immediates].filter((timer) => timer.isLive && timer.hasRef()).length;
  }

  arm(timer: SimulatedTimer): void {
    timer.dueMs = (this.#spentUs === undefined ? this.#wholeMs() : this.#loopMs) + timer.ms;
    timer.order = ++this.#order;
    this.#timers.push({ timer, dueMs: timer.dueMs, order: timer.order });
    this.#planTurn();
  }

  /** Something arrives from outside: the next turn handles it. */
  receive(handle: () => void): void {
    if (this.#isDead) return;
    this.#input.push(handle);
    this.#planTurn();
  }

  #spend(us: number): void {
    if (this.#spentUs === undefined) this.#freeAt = this.now + us;
    else this.#spentUs += us;
  }

  #monotonicUs(): number {
    return (this.now - this.#bornAt - this.#suspendedUs) * this.#rate;
  }

  #wholeMs(): number {
    return Math.floor(this.#monotonicUs() / 1_000);
  }

  #planTurn(): void {
    if (this.#isDead || this.#pauses > 0) return;
    if (this.#spentUs !== undefined) return; // planned at the end of the turn
    const at = this.#nextTurnAt();
    if (at === undefined || (this.#wake && this.#wake.at <= at)) return;
    const wake = { at };
    this.#wake = wake;
    this.scheduler.at(at, () => {
      if (this.#wake !== wake) return;
      this.#wake = undefined;
      if (this.#isDead || this.#pauses > 0) return;
      // The work that keeps it busy may have begun since this turn was planned.
      if (this.#freeAt > this.scheduler.now) this.#planTurn();
      else this.scheduler.begin(this.#turn());
    });
  }

  #nextTurnAt(): number | undefined {
    if (this.#input.length > 0 || this.#immediates.length > 0) return this.now;
    for (let first; (first = this.#timers.first); this.#timers.pop())
      if (isDue(first)) return Math.max(this.now, this.#whenMonotonic(first.dueMs));
    return undefined;
  }

  /** The time at which its monotonic clock shows this, unless it stands still meanwhile. */
  #whenMonotonic(ms: number): number {
    const us = (ms * 1_000) / this.#rate;
    // A microsecond later if that was rounded: a turn that comes too early would be planned again and again.
    return this.#bornAt + this.#suspendedUs + (Number.isInteger(us) ? us : Math.ceil(us) + 1);
  }

  /** One turn of its event loop: a step for each callback. */
  *#turn(): Generator<void, void> {
    this.#spentUs = Math.max(0, this.#freeAt - this.scheduler.now);
    this.#loopMs = this.#wholeMs();
    for (let first; (first = this.#timers.first) && first.dueMs <= this.#loopMs;) {
      this.#timers.pop();
      if (!isDue(first)) continue;
      const { timer } = first;
      if (!timer.repeats) timer.isLive = false;
      this.#run(() => timer.run());
      yield;
      if (timer.repeats && timer.isLive && timer.order === first.order) this.arm(timer);
    }
    for (const handle of this.#input.splice(0)) {
      this.#run(() => outsideOfAll(handle));
      yield;
    }
    this.#loopMs = this.#wholeMs();
    for (const immediate of this.#immediates.splice(0)) {
      if (!immediate.isLive) continue;
      this.#run(() => immediate.run());
      yield;
    }
    this.#freeAt = this.now;
    this.#spentUs = undefined;
    this.#planTurn();
  }

  #run(callback: () => void): void {
    this.#spend(this.#callbackUs());
    this.#onCallback?.();
    try {
      callback();
    } catch (error) {
      this.#onUncaught(error);
    }
  }
}

/** As in Node.js, if nobody catches it: the rest of the turn continues, if the process does. */
function throwOutside(error: unknown): void {
  process.nextTick(() => {
    throw error;
  });
}

/** Not if it was cleared, or set again, since. */
function isDue({ timer, order }: Armed): boolean {
  return timer.isLive && timer.order === order;
}

function timerMs(value: unknown): number {
  const ms = Number(value);
  return ms >= 1 && ms <= LONGEST_TIMER_MS ? Math.trunc(ms) : 1;
}
