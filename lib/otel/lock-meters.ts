import type { Attributes, BatchObservableCallback, Meter, ObservableCallback } from '@opentelemetry/api';
import { LockError } from '../api/errors.js';
import type { LockEvent } from '../api/events.js';
import type { LockMode } from '../api/lock.js';
import type { AcquireTrace, ObservedExtension, ObservedLocks } from '../api/telemetry.js';

/** Buckets in seconds. */
const ACQUIRE = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30];
const HOLD = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 900, 3_600];
/** The buckets of database clients, and one above a third of the default ttl, since no quantile can exceed the last bucket. */
const EXTENSION = [0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10, 30];

/** The reasons for the loss of held locks. */
const REASONS = ['expired', 'stolen', 'forced', 'unavailable', 'stalled', 'overstayed', 'shutdown'];

/** Locks that are counted together: of one label, in one mode. */
interface Kind {
  readonly label: string;
  /** @default 'exclusive' */
  readonly mode?: LockMode;
}

/** The metrics of one lock service. Their attributes never contain a key, an owner, a token, a host or a process. */
export class LockMeters {
  readonly #of: Attributes;
  readonly #acquires;
  readonly #holds;
  readonly #extensions;
  readonly #losses;
  readonly #releaseFailures;
  /** The kinds that were seen; each has its series from then on. */
  readonly #kinds = new Map<string, Kind>();
  /** Removes the callbacks from the meter. */
  readonly close: () => void;

  constructor(meter: Meter, locks: ObservedLocks) {
    this.#of = { 'nest_redis_lock.registration': locks.registration };
    const histogram = (name: string, description: string, explicitBucketBoundaries: number[]) =>
      meter.createHistogram(`nest_redis_lock.${name}`, {
        description,
        unit: 's',
        advice: { explicitBucketBoundaries },
      });
    this.#acquires = histogram('acquire.duration', 'Time until a call acquired the lock or gave up.', ACQUIRE);
    this.#holds = histogram('hold.duration', 'Time that locks were held.', HOLD);
    this.#extensions = histogram('extension.duration', 'Time to extend a lease.', EXTENSION);
    const counter = (name: string, description: string, unit: string) =>
      meter.createCounter(`nest_redis_lock.${name}`, { description, unit });
    this.#losses = counter('losses', 'Locks that were lost while they were held.', '{loss}');
    this.#releaseFailures = counter(
      'release.failures',
      'Releases that were not confirmed and are being repeated.',
      '{failure}',
    );
    this.#releaseFailures.add(0, this.#of);
    const gauge = (name: string, description: string, unit: string) =>
      meter.createObservableUpDownCounter(`nest_redis_lock.${name}`, { description, unit });
    const held = gauge('held.count', 'Locks that this process holds.', '{lock}');
    const pending = gauge('pending_requests', 'Calls of this process that wait for a lock.', '{request}');
    const nodes = gauge('node.count', 'Servers that keep the locks.', '{node}');
    const clock = meter.createObservableGauge('nest_redis_lock.clock.error', {
      description: 'The error bound of the estimated server clock, by which fair orders calls.',
      unit: 's',
    });
    const observeClockError: ObservableCallback = (result) => {
      const errorMs = locks.clockErrorMs?.();
      if (errorMs !== undefined) result.observe(errorMs / 1_000, this.#of);
    };
    const count: BatchObservableCallback = (result) => {
      const stats = new Map(locks.stats().map((each) => [nameOf(each), each]));
      for (const kind of stats.values()) this.#see(kind);
      for (const [name, kind] of this.#kinds) {
        const { held: heldNow = 0, waiting = 0 } = stats.get(name) ?? {};
        const attributes = this.#ofKind(kind);
        result.observe(held, heldNow, attributes);
        result.observe(pending, waiting, attributes);
      }
    };
    const countNodes: ObservableCallback = async (result) => {
      const { voting, of } = (await locks.ping()).nodes;
      result.observe(voting, { ...this.#of, 'nest_redis_lock.state': 'voting' });
      result.observe(of - voting, { ...this.#of, 'nest_redis_lock.state': 'not_voting' });
    };
    meter.addBatchObservableCallback(count, [held, pending]);
    nodes.addCallback(countNodes);
    clock.addCallback(observeClockError);
    this.close = () => {
      meter.removeBatchObservableCallback(count, [held, pending]);
      nodes.removeCallback(countNodes);
      clock.removeCallback(observeClockError);
    };
  }

  acquired(trace: AcquireTrace, tookMs: number): void {
    const { outcome, grant, error } = trace;
    this.#see(trace);
    const attributes = this.#ofKind(trace, { 'nest_redis_lock.outcome': outcome });
    if (grant !== undefined) attributes['nest_redis_lock.grant'] = grant;
    if (error !== undefined) attributes['error.type'] = errorType(error);
    this.#acquires.record(tookMs / 1_000, attributes);
  }

  extended({ tookMs, outcome }: ObservedExtension): void {
    this.#extensions.record(tookMs / 1_000, { ...this.#of, 'nest_redis_lock.outcome': outcome });
  }

  note(event: LockEvent): void {
    switch (event.type) {
      case 'acquired':
        this.#see(event);
        break;
      case 'released':
        this.#held(event, 'released');
        break;
      case 'detached':
        this.#held(event, 'detached');
        break;
      case 'lost':
        this.#held(event, 'lost');
        this.#losses.add(1, this.#loss(event, event.reason));
        break;
      case 'release-failed':
        this.#releaseFailures.add(1, this.#of);
        break;
    }
  }

  /** Begins the series of a kind with zeros: a series that begins with its first loss would not show an increase. */
  #see(kind: Kind): void {
    const name = nameOf(kind);
    if (this.#kinds.has(name)) return;
    this.#kinds.set(name, { label: kind.label, mode: kind.mode });
    for (const reason of REASONS) this.#losses.add(0, this.#loss(kind, reason));
  }

  #held(event: Kind & { heldMs: number }, end: string): void {
    this.#holds.record(event.heldMs / 1_000, this.#ofKind(event, { 'nest_redis_lock.end': end }));
  }

  #ofKind({ label, mode = 'exclusive' }: Kind, more?: Attributes): Attributes {
    return { ...this.#of, 'nest_redis_lock.label': label, 'nest_redis_lock.mode': mode, ...more };
  }

  #loss(kind: Kind, reason: string): Attributes {
    return this.#ofKind(kind, { 'nest_redis_lock.reason': reason });
  }
}

function nameOf({ label, mode = 'exclusive' }: Kind): string {
  return `${mode} ${label}`;
}

/** Returns the code of an error of this library, or the name of another error. */
export function errorType(error: unknown): string {
  if (error instanceof LockError) return error.code;
  return error instanceof Error ? error.name : '_OTHER';
}
