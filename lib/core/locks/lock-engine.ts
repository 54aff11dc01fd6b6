import { channel } from 'node:diagnostics_channel';
import { Subject } from 'rxjs';
import { failureEvent, type LockEvent } from '../../api/events.js';
import { digestOf, noted } from '../../api/holder.js';
import type { LockMode } from '../../api/lock.js';
import { quoted } from '../../api/printable.js';
import type { LockEventMessage, ObservedStats } from '../../api/telemetry.js';
import {
  EXCLUSIVE,
  type AcquireOutcome,
  type Grant,
  type HandOver,
  type Hold,
  type LockBackend,
  type WaitListener,
} from '../backend/lock-backend.js';
import type { Lease } from './lease.js';
import { Leases, type MinimumHold } from './leases.js';
import { leasesOf, type LockHandle } from './lock-handle.js';
import type { Held } from './lock-set-handle.js';
import type { ResolvedServiceOptions } from '../options/service-options.js';
import { InFlight } from '../time/in-flight.js';
import { notify } from '../time/notify.js';
import { Pacer } from '../time/pacer.js';
import { inTime } from '../time/time-limit.js';
import { unlessAborted } from './abort-listener.js';
import { CHECK_MS, Line } from './line.js';
import { ROUND_ROBIN, BY_ARRIVAL, type Order } from './order.js';
import { RefusalGate } from './refusal-gate.js';
import { closed, notKept } from './refusals.js';
import { timeOf, Waiter, type Closing, type WaitRequest } from './waiter.js';
import { Transfers } from './transfers.js';

/** For how long the lock of a probe stands if it cannot be released, in milliseconds. */
const PROBE_TTL_MS = 1_000;
/** Lines that come due within this part of a second are checked along. */
const COALESCE = 1 / 10;
/** How many lines come due at once, at most. */
const LINES_AT_ONCE = 500;
/** Of how many keys it is said that calls name different limits. */
const MAX_LIMIT_WARNINGS = 100;
/** How long a generation of contested keys lasts, in milliseconds, and how many keys it has at most. */
const [GENERATION_MS, KEYS_IN_GENERATION] = [1_000, 500];

/** The bounds of a service. */
export type Limits = Pick<ResolvedServiceOptions, 'marginMs' | 'maxWaiters' | 'cohortMs' | 'fair'>;

/** The parts of an engine. */
export interface EngineParts {
  readonly backend: LockBackend;
  readonly now: () => number;
  readonly limits: Limits;
  /** The name of this service in owner values. */
  readonly processName: string;
  /** Name of the registration. */
  readonly registration: string;
}

/**
 * The locks of one service on single keys. Each call that waits, and each lock that is held, is in one of its lines: there is one for each key and
 * mode that is wanted or held. Lines, waiters, leases and handles find here what they have in common.
 */
export class LockEngine implements WaitListener {
  readonly backend: LockBackend;
  readonly now: () => number;
  readonly limits: Limits;
  readonly order: Order;
  readonly events: LockEvents;
  readonly leases: Leases;
  /** What is detached, downgraded and adopted. */
  readonly transfers: Transfers;
  /** Makes the owner values of attempts, and the tickets of places. */
  readonly nextOwner: (note?: string) => string;
  /** Counts calls until they have ended, and what is sent until it is answered. */
  readonly inFlight = new InFlight();
  readonly gate = new RefusalGate();
  /** Calls each line that is due: for its next check, or because its attempt is slow. */
  readonly pacer: Pacer<Line>;
  /** The lines that have a place in the queue of the store. */
  readonly byTicket = new Map<string, Line>();
  readonly #lines: Readonly<Record<LockMode, Map<string, Line>>> = {
    exclusive: new Map(),
    shared: new Map(),
    permits: new Map(),
  };
  /** Made when a call had to wait: an uncontended call passes by. */
  #contested?: ContestedKeys;
  /** The keys of which it was said that calls name different limits. */
  readonly #limitMismatchWarned = new Set<string>();

  constructor({ backend, now, limits, processName, registration }: EngineParts) {
    this.backend = backend;
    this.now = now;
    this.limits = limits;
    this.order = limits.fair && backend.waitQueue?.handsOver ? BY_ARRIVAL : ROUND_ROBIN;
    this.nextOwner = ownerSequence(processName);
    this.events = new LockEvents(registration);
    this.leases = new Leases({ backend, marginMs: limits.marginMs, now, events: this.events });
    this.transfers = new Transfers(this);
    this.pacer = new Pacer<Line>({
      now,
      atOnce: LINES_AT_ONCE,
      leewayMs: () => CHECK_MS * COALESCE,
      isUrgent: () => false,
      onDue: (line) => {
        this.pacer.remove(line);
        line.onDue();
      },
    });
  }

  /** How much it keeps in memory: 0 when nothing is held or waited for. */
  get size(): number {
    const { exclusive, shared, permits } = this.#lines;
    const lines = exclusive.size + shared.size + permits.size;
    return lines + this.byTicket.size + this.leases.size + this.transfers.size;
  }

  /** How wrong the order of calls of several processes may be, as far as that is known. */
  get clockErrorMs(): number | undefined {
    return this.backend.waitQueue?.clockErrorMs?.();
  }

  /** The line of the key for calls in this mode. */
  lineOf(key: string, mode: LockMode): Line {
    const lines = this.#lines[mode];
    let line = lines.get(key);
    if (!line) lines.set(key, (line = new Line(key, mode, this)));
    return line;
  }

  /** Called by a line of which nothing is wanted or held any more. */
  forget({ key, mode }: Line): void {
    this.#lines[mode].delete(key);
  }

  /** How many calls wait for the key, in whatever mode. */
  waiting(key: string): number {
    const { exclusive, shared, permits } = this.#lines;
    const size = (lines: Map<string, Line>) => lines.get(key)?.size ?? 0;
    return size(exclusive) + size(shared) + size(permits);
  }

  /** What this process holds of the key, in whatever mode: one lease, unless it is shared, or permits. */
  leasesOf(key: string): Lease[] {
    return this.#of(key).flatMap((line) => line.leases);
  }

  /** Calls for the permits of a key name different limits. */
  noteLimits(key: string, hold: Hold, smaller: number): void {
    if (
      hold.mode !== 'permits' ||
      this.#limitMismatchWarned.has(key) ||
      this.#limitMismatchWarned.size >= MAX_LIMIT_WARNINGS
    )
      return;
    this.#limitMismatchWarned.add(key);
    this.events.warn(
      key,
      `Calls for permits of ${quoted(key)} name different limits: ${hold.limit} here, and ${smaller} elsewhere, which counts as long as such ` +
        'a call holds permits. Name the same limit in all of them.',
    );
  }

  /** Whether a call of this process had to wait for the key a moment ago. */
  wasContested(key: string): boolean {
    return this.#contested !== undefined && this.#contested.has(key);
  }

  /** Another process holds the key, or held it until now. */
  noteContested(key: string): void {
    (this.#contested ??= new ContestedKeys(this.now)).note(key);
  }

  /** What is held, and what is waited for, by label and mode. */
  stats(): ObservedStats[] {
    const stats = new Map<string, ObservedStats>();
    const of = (label: string, mode: LockMode) => {
      const name = `${mode} ${label}`;
      let entry = stats.get(name);
      if (!entry) stats.set(name, (entry = { label, mode, held: 0, waiting: 0 }));
      return entry;
    };
    this.leases.eachLabel((label, { grant: { hold = EXCLUSIVE } }) => of(label, hold.mode).held++);
    this.#eachWaiter(({ key, label = this.leases.labels.of(key), hold }) => of(label, hold.mode).waiting++);
    return [...stats.values()];
  }

  /** The labels of what is held and waited for, by key. */
  labels(): Map<string, string> {
    const labels = new Map<string, string>();
    this.#eachWaiter(({ key, label = this.leases.labels.of(key) }) => labels.set(key, label));
    this.leases.eachLabel((label, { key }) => labels.set(key, label));
    return labels;
  }

  /**
   * Acquires a lock, waiting for up to `waitMs`. Not an async function: its hops would come between each answer and its call.
   * @param closing the closing of the application, for calls of this kind
   * @param label of the call, if it has one of its own
   * @throws LockUnavailableError when the application is closed; or the reason of a signal that is aborted
   */
  acquire(key: string, request: WaitRequest, closing: Closing, label?: string): Promise<LockHandle> {
    if (closing.phase === 'closed') throw closed(key);
    const waiter = new Waiter(key, request, closing, this, label);
    this.inFlight.begin();
    this.leases.settle(); // a lease that was found lost in this very line is not in the way
    try {
      this.lineOf(key, waiter.hold.mode).join(waiter);
    } catch (bug) {
      if (!waiter.isSettled) waiter.refuse(bug);
    }
    return waiter.lock;
  }

  /**
   * Has the store keep what a call was granted for at least `holdMs`, before its caller gets it: from the moment on that nothing
   * else can refuse the call. What a call that is refused has been granted is released at once.
   * @param since when the call began, by the clock: its time counts from then
   * @throws LockUnavailableError, also when the time of the call is over; or the reason of its signal
   */
  async holdAtLeast(held: Held, request: WaitRequest, holdMs: number, since: number, closing: Closing): Promise<void> {
    const leases = leasesOf(held);
    const { key, label } = this.leases.identity(leases[0]!);
    let minimums: MinimumHold[] = [];
    try {
      request.signal?.throwIfAborted();
      minimums = leases.map((lease) => this.leases.holdAtLeast(lease, holdMs));
      await this.#confirmed(minimums, request, since);
      request.signal?.throwIfAborted();
      if (closing.phase === 'closed') throw closed(key);
      for (const minimum of minimums) minimum.assertHeld();
      for (const minimum of minimums) minimum.confirm();
    } catch (error) {
      void held.release(); // before the cancel: a lease that has ended needs no extension
      for (const minimum of minimums) minimum.cancel();
      const failure = failureEvent(error, { key, label, waitedMs: Math.round(this.now() - since) });
      if (failure) this.events.next(failure);
      throw error;
    }
  }

  /** Refuses a call, not before the event loop has run. @throws the reason */
  refuse(reason: unknown): Promise<never> {
    return this.gate.refuse(reason);
  }

  /**
   * Takes a lock from its holder.
   * @param digest of the owner that it is taken from; undefined: from whoever holds it
   * @returns whether it had one, or that one
   */
  async forceRelease(key: string, digest?: string): Promise<boolean> {
    let from: string | undefined;
    if (digest !== undefined) {
      const holding = await this.backend.inspect(key);
      from = holding?.holders.find(({ owner }) => digestOf(owner) === digest)?.owner;
      if (from === undefined) return false;
    }
    // Before it is sent: the answer to an extension behind it may be read first.
    const mayBeTaken = this.leasesOf(key).filter(({ grant }) => from === undefined || grant.owner === from);
    for (const { grant } of mayBeTaken) this.leases.suspectedForced.add(grant);
    // The lock may be passed on meanwhile; or it was acquired since, by right.
    const taken = await this.backend.forceRelease(key, from).catch((error: unknown) => {
      for (const lease of this.leasesOf(key)) if (lease.isSuspectedForced) this.leases.check(lease);
      throw error;
    });
    const isTaken = ({ owner }: Grant) => taken?.from.includes(owner) === true;
    for (const { grant } of mayBeTaken) if (!isTaken(grant)) this.leases.suspectedForced.delete(grant);
    for (const lease of this.leasesOf(key)) if (isTaken(lease.grant)) lease.lose('forced');
    return taken !== undefined;
  }

  /** Whether locks are available: acquires one beside that of the key, as a server that answers may still refuse writes. */
  async isAvailable(key: string): Promise<boolean> {
    this.inFlight.begin();
    try {
      const backend = this.backend;
      const owner = this.nextOwner();
      const request = { key: backend.probeKey(key), hold: EXCLUSIVE, owner, ttlMs: PROBE_TTL_MS };
      const outcome = await new Promise<AcquireOutcome>((resolve) => backend.acquire(request, resolve));
      if (outcome.status === 'acquired') {
        const { grant } = outcome;
        await new Promise((resolve) => backend.release(grant, {}, resolve));
      }
      return outcome.status !== 'unavailable'; // another process may be trying the same
    } catch {
      return false;
    } finally {
      this.inFlight.end();
    }
  }

  /** Refuses the calls that may not wait any more, as the closing has entered its next phase. */
  refuseWaiting(closing: Closing): void {
    for (const line of this.#all()) line.refuseWaiting(closing);
  }

  /** Settles when nothing is in flight: neither a call, nor an attempt, nor a transfer, nor what undoes an adoption. */
  async settled(): Promise<void> {
    await this.inFlight.settled();
    this.backend.insist?.();
    await this.transfers.close();
  }

  onTurn(ticket?: string, handOver?: HandOver, key?: string): void {
    if (ticket === undefined) {
      this.pacer.hurry([...this.byTicket.values()].filter((line) => line.noteMissedMessages()));
      return;
    }
    const line = this.byTicket.get(ticket);
    if (line) line.onTurn(handOver);
    else if (key !== undefined && !this.#mayHold(key, ticket)) this.backend.waitQueue?.decline?.(key, ticket);
  }

  onListening(key: string): void {
    for (const line of this.#of(key)) if (line.noteMissedMessages()) this.pacer.hurry([line]);
  }

  onTaken(key: string, owner: string): void {
    for (const line of this.#of(key)) line.onTaken(owner);
  }

  onWarning(message: string): void {
    const lines = this.#all();
    const { key = '' } = lines.find(({ size }) => size > 0) ?? lines[0] ?? {};
    this.events.warn(key, message);
  }

  #of(key: string): Line[] {
    return Object.values(this.#lines).flatMap((lines) => lines.get(key) ?? []);
  }

  #all(): Line[] {
    return Object.values(this.#lines).flatMap((lines) => [...lines.values()]);
  }

  /**
   * A line may have won the lock by an attempt before its message came. If not, the place was given up, or has come back with an older state of
   * the store.
   */
  #mayHold(key: string, owner: string): boolean {
    return this.leases.mayStillHold(owner) || this.leasesOf(key).some(({ grant }) => grant.owner === owner);
  }

  #eachWaiter(call: (waiter: Waiter) => void): void {
    for (const line of this.#all()) line.eachWaiter(call);
  }

  #confirmed(minimums: readonly MinimumHold[], request: WaitRequest, since: number): Promise<unknown> {
    const askedAt = this.now();
    const open = new Set(minimums);
    const all = Promise.all(minimums.map((minimum) => minimum.confirmed.then(() => open.delete(minimum))));
    const leftMs = Math.max(0, timeOf(request, this.backend) - (askedAt - since));
    const inItsTime = inTime<unknown>(all, Math.ceil(leftMs), () => {
      const [first] = open;
      throw notKept(first!.key, this.now() - askedAt, request, this.backend);
    });
    return unlessAborted(inItsTime, request.signal);
  }
}

/**
 * The keys that calls of this process had to wait for a moment ago: one second to two. The next call for one of them will
 * probably have to wait, too: it takes its place in the queue of the store with its first attempt, which saves the one that would
 * be refused. There are two generations of keys, as it is costly to find the oldest entry of a Map that is written all the time.
 */
class ContestedKeys {
  #recent = new Set<string>();
  #before = new Set<string>();
  #since = -Infinity;

  constructor(private readonly now: () => number) {}

  note(key: string): void {
    this.#age();
    if (this.#recent.size >= KEYS_IN_GENERATION) this.#begin(this.#recent);
    this.#recent.add(key);
  }

  has(key: string): boolean {
    this.#age();
    return this.#recent.has(key) || this.#before.has(key);
  }

  #age(): void {
    const ageMs = this.now() - this.#since;
    if (ageMs >= GENERATION_MS) this.#begin(ageMs < 2 * GENERATION_MS ? this.#recent : new Set());
  }

  #begin(before: Set<string>): void {
    this.#before = before;
    this.#recent = new Set();
    this.#since = this.now();
  }
}

const published = channel('nest-redis-lock:event');

/**
 * The events of a service, which are also published on a channel of Node.js while that has subscribers. Whoever hears of them
 * runs outside of the call that caused them. Grants, releases and contention, which are most of them, need not be made unless
 * they are observed.
 */
export class LockEvents extends Subject<LockEvent> {
  /** The same, for whoever needs none of these: to listen here does not count as observing. */
  readonly problems = new Subject<LockEvent>();

  constructor(private readonly registration: string) {
    super();
  }

  override get observed(): boolean {
    return super.observed || published.hasSubscribers;
  }

  override next(event: LockEvent): void {
    notify(this.#publish, event);
  }

  override complete(): void {
    notify(() => {
      this.problems.complete();
      super.complete();
    });
  }

  readonly warn = (key: string, message: string): void => this.next({ type: 'warning', key, message });

  readonly #publish = (event: LockEvent): void => {
    this.problems.next(event);
    super.next(event);
    if (published.hasSubscribers) published.publish(messageOf(this.registration, event));
  };
}

/** Without owner values. */
function messageOf(registration: string, event: LockEvent): LockEventMessage {
  if ('owner' in event) {
    const { owner: _, ...message } = event;
    return { registration, ...message };
  }
  if (event.type !== 'contended') return { registration, ...event };
  const { holder, ...message } = event;
  return { registration, ...message, holder: holder && { host: holder.host, pid: holder.pid } };
}

/**
 * Makes the owner values of one lock service: its process name, and a number that tells its attempts apart.
 * @param processName `host/pid/random`
 */
export function ownerSequence(processName: string): (note?: string) => string {
  let sequence = 0;
  return (note) => noted(`${processName}/${(++sequence).toString(36)}`, note);
}
