import { failureEvent } from '../../api/events.js';
import { digestOf, noted } from '../../api/holder.js';
import type { LockMode } from '../../api/lock.js';
import { quoted } from '../../api/printable.js';
import type { ObservedStats } from '../../api/telemetry.js';
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
import { Pacer } from '../time/pacer.js';
import { inTime } from '../time/time-limit.js';
import { unlessAborted } from './abort-listener.js';
import { ContestedKeys } from './contested-keys.js';
import { CHECK_MS, Line } from './line.js';
import { LockEvents } from './lock-events.js';
import { ROUND_ROBIN, BY_ARRIVAL, type Order } from './order.js';
import { RefusalGate } from './refusal-gate.js';
import { closed, notKept } from './refusals.js';
import { timeOf, Waiter, type Closing, type WaitRequest } from './waiter.js';
import { Transfers } from './transfers.js';

/** The ttl of the lock of a probe, in milliseconds. */
const PROBE_TTL_MS = 1_000;
/** Lines that come due within this fraction of a second come due together. */
const COALESCE = 1 / 10;
/** Maximum number of lines that come due at once. */
const LINES_AT_ONCE = 500;
/** Maximum number of keys for which it warns that calls use different limits. */
const MAX_LIMIT_WARNINGS = 100;

export type Limits = Pick<ResolvedServiceOptions, 'marginMs' | 'maxWaiters' | 'cohortMs' | 'fair'>;

export interface EngineParts {
  readonly backend: LockBackend;
  readonly now: () => number;
  readonly limits: Limits;
  /** The name of this service in owner values. */
  readonly processName: string;
  readonly registration: string;
}

/**
 * The locks of one service. It has a line for each key and mode that a call wants or holds, and everything that lines, waiters, leases and
 * handles share.
 */
export class LockEngine implements WaitListener {
  readonly backend: LockBackend;
  readonly now: () => number;
  readonly limits: Limits;
  readonly order: Order;
  readonly events: LockEvents;
  readonly leases: Leases;
  /** Detaches, downgrades and adopts locks. */
  readonly transfers: Transfers;
  /** Makes the owner values of attempts, and the tickets of places. */
  readonly nextOwner: (note?: string) => string;
  /** Counts the calls that wait, and the commands that are not answered. */
  readonly inFlight = new InFlight();
  readonly gate = new RefusalGate();
  /** Calls each line that is due: for its next check, or because its attempt is slow. */
  readonly pacer: Pacer<Line>;
  /** The lines that have a place in the queue of the store, by the ticket of the place. */
  readonly byTicket = new Map<string, Line>();
  readonly #lines: Readonly<Record<LockMode, Map<string, Line>>> = {
    exclusive: new Map(),
    shared: new Map(),
    permits: new Map(),
  };
  /** Undefined as long as no call had to wait. */
  #contested?: ContestedKeys;
  /** The keys for which it has warned that calls use different limits. */
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

  /** The error bound of the clocks that order the calls of all processes, in milliseconds; undefined if it is unknown. */
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

  /** Called by a line without calls and leases. */
  forget({ key, mode }: Line): void {
    this.#lines[mode].delete(key);
  }

  /** How many calls wait for the key, in all modes. */
  waiting(key: string): number {
    const { exclusive, shared, permits } = this.#lines;
    const size = (lines: Map<string, Line>) => lines.get(key)?.size ?? 0;
    return size(exclusive) + size(shared) + size(permits);
  }

  /** The leases of the key, in all modes. An exclusive lock has one. */
  leasesOf(key: string): Lease[] {
    return this.#linesOf(key).flatMap((line) => line.leases);
  }

  /** Warns, once for each key, that calls for its permits use different limits. */
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
      `Calls for permits of ${quoted(key)} name different limits: ${hold.limit} here, and ${smaller} elsewhere. The smaller limit applies while ` +
        'a call with that limit holds permits. Use the same limit in all calls.',
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

  /** How many locks are held, and how many calls wait, by label and mode. */
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

  /** The labels of the keys that calls hold or wait for. */
  labels(): Map<string, string> {
    const labels = new Map<string, string>();
    this.#eachWaiter(({ key, label = this.leases.labels.of(key) }) => labels.set(key, label));
    this.leases.eachLabel((label, { key }) => labels.set(key, label));
    return labels;
  }

  /**
   * Acquires a lock, waiting for up to `waitMs`. Not an async function: its hops would delay each answer on the way to its call.
   * @param closing how far the application has closed, for calls of this kind
   * @param label undefined: the label is made from the key
   * @throws LockUnavailableError when the application has closed; or the reason of a signal that has aborted
   */
  acquire(key: string, request: WaitRequest, closing: Closing, label?: string): Promise<LockHandle> {
    if (closing.phase === 'closed') throw closed(key);
    const waiter = new Waiter(key, request, closing, this, label);
    this.inFlight.begin();
    this.leases.settle(); // a lease whose loss was detected a moment ago must not be in the way
    try {
      this.lineOf(key, waiter.hold.mode).join(waiter);
    } catch (bug) {
      if (!waiter.isSettled) waiter.refuse(bug);
    }
    return waiter.lock;
  }

  /**
   * Makes the store keep the locks of a call for at least `holdMs`, before the call gets them. If that fails, it refuses the call, and releases
   * its locks at once.
   * @param since when the call began, by the clock of the service
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
   * @param digest the digest of the only owner that it may be taken from; undefined: any owner
   * @returns whether the lock had a holder, or this holder
   */
  async forceRelease(key: string, digest?: string): Promise<boolean> {
    let from: string | undefined;
    if (digest !== undefined) {
      const holding = await this.backend.inspect(key);
      from = holding?.holders.find(({ owner }) => digestOf(owner) === digest)?.owner;
      if (from === undefined) return false;
    }
    // Before the command is sent: the answer to a later extension may be read first.
    const mayBeTaken = this.leasesOf(key).filter(({ grant }) => from === undefined || grant.owner === from);
    for (const { grant } of mayBeTaken) this.leases.suspectedForced.add(grant);
    // In between, the lock may be passed on, or acquired again.
    const taken = await this.backend.forceRelease(key, from).catch((error: unknown) => {
      for (const lease of this.leasesOf(key)) if (lease.isSuspectedForced) this.leases.check(lease);
      throw error;
    });
    const isTaken = ({ owner }: Grant) => taken?.from.includes(owner) === true;
    for (const { grant } of mayBeTaken) if (!isTaken(grant)) this.leases.suspectedForced.delete(grant);
    for (const lease of this.leasesOf(key)) if (isTaken(lease.grant)) lease.lose('forced');
    return taken !== undefined;
  }

  /** Whether locks are available: acquires one on the server of the key, since a server that answers may still refuse writes. */
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
      return outcome.status !== 'unavailable'; // contended: another process tries the same
    } catch {
      return false;
    } finally {
      this.inFlight.end();
    }
  }

  /** Refuses the calls that may not wait any more: the closing has entered its next phase. */
  refuseWaiting(closing: Closing): void {
    for (const line of this.#allLines()) line.refuseWaiting(closing);
  }

  /** Settles when no call waits, and no command is in flight. */
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

  onMayBeFree(key: string): void {
    for (const line of this.#linesOf(key)) if (line.noteMissedMessages()) this.pacer.hurry([line]);
  }

  onTaken(key: string, owner: string): void {
    for (const line of this.#linesOf(key)) line.onTaken(owner);
  }

  onWarning(message: string): void {
    const lines = this.#allLines();
    const { key = '' } = lines.find(({ size }) => size > 0) ?? lines[0] ?? {};
    this.events.warn(key, message);
  }

  #linesOf(key: string): Line[] {
    return Object.values(this.#lines).flatMap((lines) => lines.get(key) ?? []);
  }

  #allLines(): Line[] {
    return Object.values(this.#lines).flatMap((lines) => [...lines.values()]);
  }

  /** Whether this process may have the lock of this owner value. If not, it has given up the place, or the store has lost the place. */
  #mayHold(key: string, owner: string): boolean {
    return this.leases.mayStillHold(owner) || this.leasesOf(key).some(({ grant }) => grant.owner === owner);
  }

  #eachWaiter(call: (waiter: Waiter) => void): void {
    for (const line of this.#allLines()) line.eachWaiter(call);
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
 * Makes the owner values of one lock service: its process name, and the number of the attempt.
 * @param processName `host/pid/random`
 */
export function ownerSequence(processName: string): (note?: string) => string {
  let sequence = 0;
  return (note) => noted(`${processName}/${(++sequence).toString(36)}`, note);
}
