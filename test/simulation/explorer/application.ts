import { CALM_KEY, CALM_SET, type EntryOf, type Unstamped } from '../../chaos/history.js';
import type { Lock, LockHandle, LockParcel, LockService, RedisLockModuleOptions } from '../../chaos/library.js';
import type { Turn } from '../../chaos/liveness.js';
import type { Library } from '../../chaos/mutant.js';
import { MUTANTS } from '../../chaos/mutants.js';
import {
  CROWDED_KEY,
  hasOverstayed,
  holdOf,
  leaseLeftMs,
  ofPermits,
  ONE_PERMIT,
  perhapsLimited,
  shared,
  tokenOf,
  wantsPermits,
  type Held,
  type Wish,
} from '../../chaos/wishes.js';
import type { SimulatedProcess } from '../process.js';
import type { Scheduler } from '../scheduler.js';
import { reach, type Marks } from './marks.js';
import type { Feature, Plan } from './plan.js';
import type { Access, Resource } from './resource.js';
import type { Witness } from './witness.js';

/** The leases that calls request, in milliseconds. */
export const TTLS_MS = [300, 600, 1_500];
export const WAIT_MS = 3_000;
/** How long work under locks may continue when the application closes, in milliseconds. */
export const SHUTDOWN_MS = 1_500;
/** How often a holder checks its lock, in milliseconds; in long work rarely, in steps of this part of it. */
const LOOK_MS = 10;
const LOOKS = 10;
/** Longer than a run continues after the faults, in milliseconds. */
const UNTIL_SERVED_MS = 60_000;
/** The share of turns in which the application does this. */
const SHARES = {
  set: 0.15,
  calmSet: 0.4,
  hold: 0.05,
  abort: 0.15,
  withLock: 0.5,
  unawaited: 0.5,
  noted: 0.2,
  careless: 0.5,
  outlasting: 0.7,
  detach: 0.2,
  adopt: 0.5,
  deliveredTwice: 0.3,
  sharedSet: 0.1,
  shared: 0.67,
  calmShared: 0.4,
  downgrade: 0.2,
  crowded: 0.4,
  permits: 0.85,
};
/** The share of calls with a note: a lock is passed on only to calls with the same note. */
const NOTES = ['editing', 'printing'];
/** Work often takes longer than a grant that was handed over with no more time than this left, in milliseconds. */
const LATE_GRANT_MS = 1_460;
const OUTLASTS_GRANT_MS = 2_200;
/** How often a leader checks, on average twice, in milliseconds. */
const LEADER_LOOKS_MS = 150;
const ELECTIONS = ['leader 1', 'leader 2'];
/** Leaders resign after at most this time, in milliseconds. */
const LONGEST_TERM_MS = 1_500;
/** Their work ends within this time after the request to end, in milliseconds. */
const ENDS_WITHIN_MS = 50;
/**
 * After the faults, each process has this many calls under way: otherwise none would wait while two others are served.
 */
const CALM_CALLS = 2;
/**
 * The longest time between two turns: during faults, after them, and after a turn that was refused. In milliseconds.
 */
const PAUSE_MS = { faults: 2, calm: 20, refused: 60 };
/** Simultaneous calls for one lock, so that it is passed on among them. */
const BURST = 8;
/** How often a careless caller that is refused asks again at once; then it pauses. */
const CARELESS = { times: 15, pauseMs: 150 };
/** Nobody can be refused this often in one callback: a refusal lets the event loop run. */
const REFUSALS_IN_ONE_STEP = 10;
/** How much later a forced release may run that was sent to a hanging server, in milliseconds. */
const LATE_MS = 3_000;

interface TurnPlan {
  readonly wish: Wish;
  readonly workMs: number;
}

interface Self {
  readonly number: number;
  readonly incarnation: number;
  readonly process: Pick<SimulatedProcess, 'now' | 'trueMs'> & {
    setTimeout(act: () => void, ms: number, args: readonly unknown[]): unknown;
  };
}

type Answer = ReturnType<Resource['access']>;

/**
 * The interface between a process of the application and its world: a simulated one, or the world of chaos, with real
 * servers.
 */
export interface Surroundings {
  readonly scheduler: Pick<Scheduler, 'stream' | 'steps' | 'at'>;
  readonly plan: Pick<Plan, 'keys' | 'parallel' | 'processes' | 'features' | 'mutant' | 'commandTimeoutMs'> & {
    /**
     * The share of turns that hold on to a lease which nobody extends.
     * @default 0.005
     */
    lapses?: number;
  };
  readonly stage: { source(library: Library): Pick<RedisLockModuleOptions, 'redis' | 'redlock'> };
  /** A simulated one answers at once, and nothing happens in between. */
  readonly resource: { access(access: Access): Answer | Promise<Answer> };
  readonly witness: Pick<Witness, 'held' | 'losses'>;
  readonly marks: Marks;
  /** The detached locks: a queue, which may deliver one twice, and in any order. */
  readonly parcels: LockParcel[];
  readonly isCalm: boolean;
  note(entry: Unstamped, at?: number): void;
  complain(rule: string, text: string): void;
  /** Called when a turn begins to work; its result is called when the turn has worked. */
  besides?(turn: string, lock: Held): Promise<(() => Promise<void>) | undefined>;
}

/** The work of a process of the application: it increments counters under locks, and records its observations. */
export class Application {
  /** The turns after the end of the faults. */
  readonly calmTurns: Turn[] = [];
  /** How often work began with a grant that had little time left. */
  lateGrants = 0;
  /** Whether it closes during its turns. */
  isClosing = false;
  /** Whether it has closed its locks. */
  isClosed = false;
  readonly #name: string;
  readonly #random: () => number;
  readonly #keys: readonly string[];
  readonly #ends: Promise<unknown>[] = [];
  /** Called if it is killed before it can record a forced release. */
  readonly #forcing = new Set<() => void>();
  #service?: LockService;
  #isRunning = true;
  #turns = 0;

  constructor(
    private readonly world: Surroundings,
    private readonly library: Library,
    private readonly self: Self,
  ) {
    this.#name = `${self.number}.${self.incarnation}`;
    this.#random = world.scheduler.stream(`application ${this.#name}`);
    this.#keys = Array.from({ length: world.plan.keys }, (_, key) => `key ${key}`);
  }

  /** Runs until it is stopped or closed. */
  async run(): Promise<void> {
    const { plan } = this.world;
    const { service } = await this.library.openLocks(this.#options());
    this.#service = service;
    if (this.#does('elections'))
      for (const key of ELECTIONS) {
        const ttlMs = this.#pick(TTLS_MS);
        this.#campaign(service, key, ttlMs);
      }
    const calls = Math.max(plan.parallel, CALM_CALLS);
    await Promise.all(Array.from({ length: calls }, (_, call) => this.#takeTurns(service, call)));
    await Promise.all(this.#ends);
    await this.#close(service);
  }

  /** No more turns: when the current ones have ended, it closes. */
  stop(): void {
    this.#isRunning = false;
  }

  /** The application closes now. */
  closeNow(): void {
    this.#isRunning = false;
    this.isClosing = true;
    if (this.#service) void this.#close(this.#service);
  }

  /**
   * Simultaneous calls for one lock.
   * @param act called in between, when the lock was passed on
   */
  burst(act?: (key: string) => void): void {
    if (!this.#service || !this.#isRunning) return;
    const key = this.#pick(this.#does('permits') ? [...this.#keys, CROWDED_KEY] : this.#keys);
    const isShared = this.#does('shared') && this.#random() < SHARES.shared;
    const how = key === CROWDED_KEY ? ONE_PERMIT : isShared && { mode: 'shared' as const };
    const wish: Wish = { ttlMs: this.#pick(TTLS_MS), ...how }; // it is not passed on to a call that wants another lease
    let granted = 0;
    const onGranted = () => {
      if (++granted === 2) act?.(key);
    };
    for (let call = 0; call < BURST; call++) {
      const turn = { wish, workMs: this.#random() * (call < 2 ? 5 : 60) };
      this.#ends.push(this.#takeTurn(this.#service, key, turn, onGranted));
    }
  }

  /** Takes a lock from its holder. */
  forceRelease(key = this.#pick(this.#keys)): void {
    if (this.#service && this.#isRunning) this.#ends.push(this.#takeAway(this.#service, key));
  }

  /** It is killed: its forced release may run all the same. */
  abandon(): void {
    for (const note of this.#forcing) note();
  }

  #options(): RedisLockModuleOptions {
    const { plan, stage } = this.world;
    const settings = {
      ttlMs: Math.max(...TTLS_MS),
      waitMs: WAIT_MS,
      commandTimeoutMs: plan.commandTimeoutMs,
      shutdownTimeoutMs: SHUTDOWN_MS,
      lazyConnect: true,
      fair: plan.features.includes('fair'),
      ...(plan.mutant === undefined ? {} : MUTANTS[plan.mutant]!.options),
    };
    return { ...settings, ...stage.source(this.library) } as RedisLockModuleOptions;
  }

  async #takeTurns(service: LockService, call: number): Promise<void> {
    const { world } = this;
    const isCareless = this.#does('careless') && this.self.number === world.plan.processes - 1 && call === 0;
    while (this.#isRunning) {
      const { isCalm } = world;
      if (!isCalm && call >= world.plan.parallel) {
        await this.#sleep(PAUSE_MS.calm);
        continue;
      }
      const orShared = this.#does('shared') && !isCalm ? SHARES.sharedSet : 0;
      const sets = this.#does('sets') ? SHARES[isCalm ? 'calmSet' : 'set'] : orShared;
      const adopts = this.#does('parcels') && world.parcels.length > 0 && this.#random() < SHARES.adopt;
      if (adopts) await this.#adopt(service);
      else if (this.#random() < sets) await this.#takeSet(service);
      else if (isCalm)
        await this.#takeTurn(service, CALM_KEY, this.#perhapsShared(this.#shortTurn(), SHARES.calmShared));
      else if (isCareless) await this.#insist(service, this.#pick(this.#keys));
      else if (this.#does('permits') && this.#random() < SHARES.crowded)
        await this.#takeTurn(service, CROWDED_KEY, this.#crowdedTurn());
      else await this.#takeTurn(service, this.#pick(this.#keys), this.#perhapsShared(this.#anyTurn()));
      await this.#sleep(this.#random() * PAUSE_MS[isCalm ? 'calm' : 'faults']);
    }
  }

  /**
   * Most are short; some take longer than their ttl, with the watchdog; some hold on to a lease that nobody extends.
   */
  #anyTurn(): TurnPlan {
    const style = this.#random();
    const { lapses = 0.005 } = this.world.plan;
    const watchdog = style < 1 - lapses;
    const ttlMs = watchdog ? this.#pick(TTLS_MS) : Math.min(...TTLS_MS);
    const workMs =
      style < 0.99 - lapses
        ? this.#random() * this.#random() * 15
        : watchdog
          ? ttlMs * (0.5 + 2 * this.#random())
          : (0.5 + this.#random()) * 2 * ttlMs;
    const holdMs = this.#does('holds') && this.#random() < SHARES.hold ? 20 + Math.floor(this.#random() * 400) : 0;
    const aborts = this.#does('aborts') && this.#random() < SHARES.abort;
    const note = this.#does('notes') && this.#random() < SHARES.noted ? this.#pick(NOTES) : undefined;
    return { wish: { ttlMs, watchdog, holdMs, note, ...(aborts && { signal: this.#abortLater() }) }, workMs };
  }

  #shortTurn(): TurnPlan {
    return { wish: { ttlMs: Math.min(...TTLS_MS) }, workMs: this.#random() * 5 };
  }

  #perhapsShared(turn: TurnPlan, share = SHARES.shared): TurnPlan {
    if (!this.#does('shared') || this.#random() >= share) return turn;
    return { ...turn, wish: shared(perhapsLimited(turn.wish, this.#random)) };
  }

  /** Some want the lock exclusively, or share it: they exclude all permits. */
  #crowdedTurn(): TurnPlan {
    const turn = this.#anyTurn();
    if (this.#random() >= SHARES.permits) return this.#perhapsShared(turn);
    return { ...turn, wish: perhapsLimited(ofPermits(turn.wish, this.#random), this.#random) };
  }

  #abortLater(): AbortSignal {
    const controller = new AbortController();
    this.self.process.setTimeout(() => controller.abort(), this.#random() * this.#random() * 500, []);
    return controller.signal;
  }

  async #takeTurn(
    service: LockService,
    key: string,
    { wish, workMs }: TurnPlan,
    onGranted?: () => void,
  ): Promise<void> {
    const turn = this.#nextTurn();
    const { number: worker } = this.self;
    const askedAt = this.#nowMs();
    this.#note({ type: 'asked', worker, turn, key });
    let isGranted = false;
    const isAlone = holdOf(wish) === undefined;
    const isOwn = isAlone && key !== CALM_KEY;
    const work = async (lock: Held) => {
      isGranted = true;
      this.#granted(turn, lock, wish);
      if (key === CALM_KEY && isAlone) this.calmTurns.push({ worker, askedAt, grantedAt: this.#nowMs() });
      onGranted?.();
      await this.#increment(turn, lock, workMs, wish);
      if (isOwn && this.#does('shared') && this.#random() < SHARES.downgrade) await this.#downgrade(lock as Lock, wish);
    };
    try {
      if (this.#does('with-lock') && this.#random() < SHARES.withLock) {
        const awaitRelease = this.#random() >= SHARES.unawaited;
        const options = { ...wish, onLost: 'ignore', awaitRelease } as const;
        await (wantsPermits(options) ? service.withPermits(key, options, work) : service.withLock(key, options, work));
        if (!awaitRelease) reach(this.world.marks, 'release not awaited');
      } else {
        const lock = await (wantsPermits(wish) ? service.acquirePermits(key, wish) : service.acquire(key, wish));
        await work(lock);
        const detaches = isOwn && this.#does('parcels') && this.#random() < SHARES.detach;
        if (detaches) await this.#detach(lock as Lock);
        await lock.release();
      }
    } catch (error) {
      if (isGranted) throw error;
      this.#refused(turn, error);
      await this.#sleep(this.#random() * PAUSE_MS.refused);
    }
  }

  /** Continues as a reader, which counts as another turn. */
  async #downgrade(lock: Lock, wish: Wish): Promise<void> {
    const turn = this.#nextTurn();
    this.#note({ type: 'asked', worker: this.self.number, turn, key: lock.key });
    let reading;
    try {
      reading = await lock.downgrade();
    } catch (error) {
      this.#refused(turn, error);
      return;
    }
    reach(this.world.marks, 'downgraded');
    const next: Wish = { ttlMs: wish.ttlMs, mode: 'shared' };
    this.#granted(turn, reading, next, 'downgraded');
    await this.#increment(turn, reading, this.#random() * 15, next);
  }

  /** Another turn, in any process, continues with the lock. */
  async #detach(lock: Lock): Promise<void> {
    const { parcels } = this.world;
    try {
      const parcel = await lock.detach({ ttlMs: this.#pick(TTLS_MS) });
      parcels.push(parcel);
      if (this.#random() < SHARES.deliveredTwice) parcels.push(parcel);
    } catch {} // it is kept, or was lost, or the server does not answer
  }

  async #adopt(service: LockService): Promise<void> {
    const { marks, parcels } = this.world;
    const [parcel] = parcels.splice(Math.floor(this.#random() * parcels.length), 1);
    const turn = this.#nextTurn();
    this.#note({ type: 'asked', worker: this.self.number, turn, key: parcel!.key });
    let lock;
    try {
      lock = await service.adopt(parcel!);
    } catch (error) {
      this.#refused(turn, error);
      return;
    }
    reach(marks, 'adopted');
    const wish = { ttlMs: Math.max(...TTLS_MS) }; // the watchdog of the service
    this.#granted(turn, lock, wish, 'adopted');
    await this.#increment(turn, lock, this.#random() * 15, wish);
    await lock.release();
  }

  /** Asks again at once whenever it is refused. */
  async #insist(service: LockService, key: string): Promise<void> {
    const { scheduler } = this.world;
    const wish = { ttlMs: this.#pick(TTLS_MS), waitMs: this.#random() < SHARES.careless ? 0 : 50 };
    let [step, inOneStep] = [scheduler.steps, 0];
    for (let times = 0; this.#isRunning && !this.world.isCalm; times++) {
      const turn = this.#nextTurn();
      const askedAt = this.#nowMs();
      try {
        const lock = await service.acquire(key, wish);
        this.#note({ type: 'asked', worker: this.self.number, turn, key }, askedAt);
        this.#granted(turn, lock, wish);
        await this.#increment(turn, lock, this.#random() * 5, wish);
        await lock.release();
        return;
      } catch {
        inOneStep = scheduler.steps === step ? inOneStep + 1 : 0;
        step = scheduler.steps;
        if (inOneStep > REFUSALS_IN_ONE_STEP) {
          this.world.complain(
            'event loop stood still',
            `process ${this.#name} was refused ${inOneStep} times in one step`,
          );
          await this.#sleep(1_000);
        } else if (times % CARELESS.times === CARELESS.times - 1) await this.#sleep(CARELESS.pauseMs);
      }
    }
  }

  /** A turn under two locks, named in any order: for each of them it counts as a turn. */
  async #takeSet(service: LockService): Promise<void> {
    const calmly = this.world.isCalm || undefined;
    const keys = [...new Set(calmly ? CALM_SET : [this.#pick(this.#keys), this.#pick(this.#keys)])];
    if (this.#random() < 0.5) keys.reverse();
    const { number: worker } = this.self;
    const turns = keys.map((key) => ({ key, turn: this.#nextTurn() }));
    const { wish, workMs } = calmly ? this.#shortTurn() : this.#perhapsShared(this.#anyTurn(), 0.5);
    const askedAt = this.#nowMs();
    for (const { key, turn } of turns) this.#note({ type: 'asked', worker, turn, key, calmly });
    let set;
    try {
      set = await service.acquireAll(keys, calmly ? { ...wish, waitMs: UNTIL_SERVED_MS } : wish);
    } catch (error) {
      for (const { turn } of turns) this.#refused(turn, error);
      await this.#sleep(this.#random() * PAUSE_MS.refused);
      return;
    }
    if (keys.length > 1) reach(this.world.marks, 'set');
    const works = turns.map(({ key, turn }) => {
      const lock = set.get(key);
      if (!lock.isHeld) {
        this.#note({ type: 'refused', turn, code: 'lost while another one was waited for' });
        return undefined;
      }
      this.#granted(turn, lock, wish);
      if (key === CALM_KEY) this.calmTurns.push({ worker, askedAt, grantedAt: this.#nowMs() });
      return this.#increment(turn, lock, workMs, wish);
    });
    await Promise.all(works);
    await set.release();
  }

  #campaign(service: LockService, key: string, ttlMs: number): void {
    const leader = service.leader(key, { ttlMs });
    let askedAt = this.#nowMs();
    leader.state$.subscribe(({ status }) => {
      if (status === 'campaigning') askedAt = this.#nowMs();
    });
    service.whileLeader(key, { ttlMs }, async ({ signal }) => {
      const turn = this.#nextTurn();
      const lock = service.current(key);
      this.#note({ type: 'asked', worker: this.self.number, turn, key, endlessly: true }, askedAt);
      this.#granted(turn, lock, { ttlMs });
      reach(this.world.marks, 'election');
      const { isHeld, end } = this.#watch(turn, lock);
      const resignsAt = this.#nowMs() + this.#random() * LONGEST_TERM_MS;
      while (!signal.aborted && isHeld()) {
        const answer = this.world.resource.access({ turn, key, token: lock.fencingToken });
        const { accepted, value } = answer instanceof Promise ? await answer : answer;
        await this.#sleep(this.#random() * LEADER_LOOKS_MS);
        const write = { turn, key, token: lock.fencingToken, base: value };
        const written = accepted && isHeld() && this.world.resource.access(write);
        if (written instanceof Promise) await written;
        if (this.#nowMs() >= resignsAt) void leader.resign();
      }
      await this.#sleep(this.#random() * ENDS_WITHIN_MS);
      end('released'); // unless it was lost: until here no other process may lead
    });
  }

  async #takeAway(service: LockService, key: string): Promise<void> {
    const { world } = this;
    const at = this.#nowMs();
    const loss = { at: at * 1_000, until: Infinity, key };
    world.witness.losses.push(loss);
    let answered: number | undefined;
    const note = () =>
      this.#note({ type: 'forced', process: this.#name, key, answered, until: this.#nowMs() + LATE_MS }, at);
    note(); // it may be killed before the answer
    this.#forcing.add(note);
    try {
      if (await service.forceRelease(key)) answered = this.#nowMs();
    } catch {} // it may have run all the same
    loss.until = (this.#nowMs() + LATE_MS) * 1_000;
    if (answered !== undefined) reach(world.marks, 'taken by force');
    this.#forcing.delete(note);
    note();
  }

  /** Until it no longer needs its lock; then its caller releases the lock. */
  async #increment(turn: string, lock: Held, workMs: number, wish: Wish): Promise<void> {
    const { resource } = this.world;
    const { key } = lock;
    const token = tokenOf(lock);
    const mayWrite = holdOf(wish) === undefined;
    const { holdMs = 0 } = wish;
    const { isHeld, end } = this.#watch(turn, lock);
    // Its time began when the call got the lock, before the store was asked to keep it.
    const keptMs = holdMs > 0 ? (lock as LockHandle).lease.demands.keptForMs : 0;
    const keptUntil = this.#nowMs() + this.self.process.trueMs(keptMs) * 0.98 - 3;
    if (isHeld()) {
      // Permits have no token: they protect no counter.
      const finish = this.world.besides && (await this.world.besides(turn, lock));
      const answer = token === undefined ? undefined : resource.access({ turn, key, token });
      const seen = answer instanceof Promise ? await answer : answer;
      const isLate = (lock as LockHandle).lease.provisionalTtlMs !== undefined && lock.remainingMs < LATE_GRANT_MS;
      if (isLate) this.lateGrants++;
      const until = this.#nowMs() + (isLate && this.#random() < SHARES.outlasting ? OUTLASTS_GRANT_MS : workMs);
      const lookMs = Math.max(LOOK_MS, (until - this.#nowMs()) / LOOKS);
      while (isHeld() && this.#nowMs() < until) await this.#sleep(Math.min(lookMs, until - this.#nowMs()));
      // Some do not check before they write: the token has to protect the counter then.
      const isWriting = seen?.accepted && (this.#random() < 0.5 || isHeld());
      const written = isWriting && resource.access({ turn, key, token: token!, ...(mayWrite && { base: seen.value }) });
      if (written instanceof Promise) await written;
      if (finish) await finish();
    }
    if (!isHeld()) return;
    if (keptUntil > this.#nowMs()) this.world.scheduler.at(keptUntil * 1_000, () => end('released', keptUntil));
    else end('released');
  }

  /** Records how a turn holds its lock, and how that ends: once. */
  #watch(turn: string, lock: Held) {
    const { marks, witness } = this.world;
    let ended = false;
    let noted = NaN;
    const end = (as: 'released' | 'lost', at?: number) => {
      if (ended) return;
      ended = true;
      const how = as === 'lost' && hasOverstayed(lock) ? 'overstayed' : as;
      if (how !== 'released') reach(marks, how === 'lost' ? 'lost lease' : how);
      this.#note({ type: 'ended', turn, how }, at);
    };
    lock.signal.addEventListener('abort', () => end('lost'), { once: true });
    if (lock.signal.aborted) end('lost');
    const isHeld = (): boolean => {
      if (ended) return false;
      if ((lock as LockHandle).lease.checkState() === 'unknown') reach(marks, 'unknown lease');
      else if (lock.isHeld) {
        const until = this.#deadlineOf(lock);
        // Once for each extension, because repetitions say nothing new; but always if it should have ended.
        if (!(Math.abs(until - noted) < 0.5 && this.#nowMs() < noted)) this.#note({ type: 'held', turn, until });
        noted = until;
        witness.held({ key: lock.key, owner: lock.owner, token: tokenOf(lock) }, this.self.process.now, turn);
      } else end('lost');
      return !ended;
    };
    return { isHeld, end };
  }

  #granted(turn: string, lock: Held, wish: Wish, came?: EntryOf<'granted'>['came']): void {
    const { ttlMs, holdMs = 0, maxHoldMs } = wish;
    const { origin, lease } = lock as LockHandle;
    const { provisionalTtlMs: grantMs } = lease;
    const until = this.#deadlineOf(lock);
    if (origin === 'passed') reach(this.world.marks, 'cohort');
    if (grantMs !== undefined) reach(this.world.marks, 'hand-over');
    // A call that asked later may have it: an earlier call of its queue has then given up.
    const ageMs = lease.deadline - leaseLeftMs(lock) - lease.sentAt;
    const sentAt = this.#nowMs() - this.self.process.trueMs(ageMs);
    const standsUntil = Math.max(until, this.#nowMs() + this.self.process.trueMs(holdMs));
    const { owner } = lock;
    this.#note({
      type: 'granted',
      turn,
      ttlMs: Math.max(ttlMs, holdMs),
      token: tokenOf(lock),
      owner,
      sentAt,
      until: standsUntil,
      grantMs,
      hold: holdOf(wish),
      came,
      maxHoldMs,
    });
  }

  #refused(turn: string, error: unknown): void {
    const { code, name } = error as { code?: string | number; name: string };
    if (name === 'AbortError') reach(this.world.marks, 'abort');
    this.#note({ type: 'refused', turn, code: typeof code === 'string' ? code : name });
  }

  async #close(service: LockService): Promise<void> {
    await service.onApplicationShutdown();
    this.isClosed = true;
  }

  #does(feature: Feature): boolean {
    return this.world.plan.features.includes(feature);
  }

  #nextTurn(): string {
    return `${this.#name}.${this.#turns++}`;
  }

  #deadlineOf(lock: Held): number {
    return this.#nowMs() + this.self.process.trueMs(lock.remainingMs);
  }

  /** The time of the simulation that its code has reached, in milliseconds. */
  #nowMs(): number {
    return this.self.process.now / 1_000;
  }

  #note(entry: Unstamped, at = this.#nowMs()): void {
    this.world.note(entry, at);
  }

  #sleep(ms: number): Promise<void> {
    return new Promise((resolve) => this.self.process.setTimeout(resolve, ms, []));
  }

  #pick<T>(list: readonly T[]): T {
    return list[Math.floor(this.#random() * list.length)]!;
  }
}
