import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import type { Lease } from '../lease/lease.js';

/** How many classes of keys are remembered: keys with names in them are unbounded, memory is not. */
const MAX_CLASSES = 1_000;
/** How many orders of two classes are remembered. */
const MAX_ORDERS = 10_000;
/** How many warnings are given: then the check ends. */
const MAX_WARNINGS = 100;

/** Ids in a plain key: UUIDs, long hexadecimal numbers, digits. */
const IDS = /[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|[\da-f]{16,}|\d+/gi;
const PLACEHOLDERS = /\{[^{}]*\}/g;

/** The method whose `@Locked` asks for a lock. */
export interface LockedMethod {
  /** `Class.method`. */
  readonly name: string;
  /** The label of its locks, unless the option says another. */
  readonly label: string;
  /** The text of its key; undefined where it has several, or a function makes them. */
  readonly template?: string;
  /** What it does about contention, if that is no error: see `@Locked`. */
  readonly onContended?: unknown;
}

/** A function that the application called, directly or not: frames of the stack above it are those of the library. */
export type EntryPoint = (...args: never[]) => unknown;

/** All keys that differ in their ids alone. */
interface KeyClass {
  readonly name: string;
  /** The classes of the locks that were taken while one of this class was held, each with how that was first seen. */
  readonly taken: Map<KeyClass, Step>;
}

/** A lock that was taken while another was held. */
interface Step {
  /** Says who took which. */
  readonly order: string;
  /** Whether its key is smaller than that of the other. */
  readonly goesBack: boolean;
}

interface Taken {
  readonly key: string;
  readonly keyClass: KeyClass;
}

interface Noted {
  readonly keyClass: KeyClass;
  readonly method: string;
}

/**
 * Finds locks that are taken in different orders, so that two calls could wait for each other: a graph of classes of keys, with
 * an edge from the class of a lock that a call holds to the class of the lock that it asks for. A cycle is a deadlock that may
 * happen; none has to. The idea is that of lockdep, the lock validator of Linux: docs.kernel.org/locking/lockdep-design.html.
 *
 * A call for several keys takes them sorted, so it adds an edge from each to the next. Calls that all go by the order of keys do
 * not wait for each other, whatever classes their keys are of: a cycle counts only if one of its steps goes back.
 */
export class LockOrder {
  readonly #classes = new Map<string, KeyClass>();
  readonly #noted = new WeakMap<Lease, Noted>();
  readonly #warned = new Set<string>();
  #orders = 0;

  /** @param warn undefined: calls are refused */
  constructor(private readonly warn: ((key: string, message: string) => void) | undefined) {}

  /** Remembers the method that a lock was acquired for: the class of its key, and a name in messages. */
  note(lease: Lease, { name, template }: LockedMethod): void {
    const keyClass = this.#classOf(lease.key, template);
    if (keyClass && !this.#noted.has(lease)) this.#noted.set(lease, { keyClass, method: name });
  }

  /**
   * Called in the line in which a call asks for locks, before that.
   * @param keys what it asks for at once, sorted: each is waited for while those before it are held
   * @param held the leases that the call holds
   * @param method the method whose `@Locked` asks; where there is none, the line that called `entry` is named
   * @throws LockOptionsError where calls are refused
   */
  check(keys: readonly string[], held: readonly Lease[], method: LockedMethod | undefined, entry: EntryPoint): void {
    // A call that is refused takes none of its locks.
    const undo: (() => void)[] = [];
    try {
      this.#lookAt(keys, held, method, entry, undo);
    } catch (error) {
      for (const each of undo.reverse()) each();
      throw error;
    }
  }

  /** @param undo gets what takes the orders that are new out again */
  #lookAt(
    keys: readonly string[],
    held: readonly Lease[],
    method: LockedMethod | undefined,
    entry: EntryPoint,
    undo: (() => void)[],
  ): void {
    let by = method?.name;
    const nameOf = () => (by ??= callSite(entry)); // the stack is read once
    const outer = held.map((lease) => ({ key: lease.key, ...this.#notedOf(lease) }));
    let previous: Taken | undefined;
    for (const key of keys) {
      if (held.some((lease) => lease.key === key)) continue;
      const keyClass = this.#classOf(key, method?.template);
      if (!keyClass) continue;
      const wanted = { key, keyClass };
      for (const { method: by, ...before } of outer) {
        const under = `under ${quoted(before.key)}${by === undefined ? '' : ` (${by})`}`;
        this.#look(before, wanted, () => `${nameOf()} takes ${quoted(key)} ${under}`, undo);
      }
      if (previous) {
        const first = previous;
        this.#look(
          first,
          wanted,
          () => `${nameOf()} takes ${quoted(first.key)} before ${quoted(key)} (${OF_A_SET})`,
          undo,
        );
      }
      previous = wanted;
    }
  }

  /**
   * @param order says who takes the one before the other
   * @param undo gets what takes the order out again, if it is new
   */
  #look(before: Partial<Taken>, wanted: Taken, order: () => string, undo: (() => void)[]): void {
    if (this.#warned.size >= MAX_WARNINGS || !isTaken(before)) return;
    const goesBack = before.key > wanted.key;
    if (before.keyClass === wanted.keyClass && !goesBack) return;
    const known = before.keyClass.taken.get(wanted.keyClass);
    if (known && (known.goesBack || !goesBack)) return;
    const pair = `${before.keyClass.name}\n${wanted.keyClass.name}`;
    if (this.#warned.has(pair)) return;
    const path = pathBetween(wanted.keyClass, before.keyClass, goesBack);
    if (!path && !known && this.#orders >= MAX_ORDERS) return;
    const step = { order: order(), goesBack };
    if (!path) undo.push(this.#add(before.keyClass, wanted.keyClass, step));
    else if (before.keyClass === wanted.keyClass) this.#report(wanted.key, pair, unsorted(step.order));
    else this.#report(wanted.key, pair, inverted(step.order, path));
  }

  /** @returns what takes it out again */
  #add({ taken }: KeyClass, wanted: KeyClass, step: Step): () => void {
    const known = taken.get(wanted);
    taken.set(wanted, step);
    if (known) return () => void taken.set(wanted, known);
    this.#orders++;
    return () => {
      taken.delete(wanted);
      this.#orders--;
    };
  }

  #report(key: string, pair: string, message: string): void {
    if (!this.warn) throw new LockOptionsError(message);
    this.#warned.add(pair);
    this.warn(key, message);
  }

  #notedOf(lease: Lease): Partial<Noted> {
    return this.#noted.get(lease) ?? { keyClass: this.#classOf(lease.key) };
  }

  /** Undefined when there are too many. */
  #classOf(key: string, template?: string): KeyClass | undefined {
    const name = template === undefined ? key.replace(IDS, '*') : template.replace(PLACEHOLDERS, '*');
    let found = this.#classes.get(name);
    if (!found && this.#classes.size < MAX_CLASSES) this.#classes.set(name, (found = { name, taken: new Map() }));
    return found;
  }
}

/** Says in a report why one lock is taken before another. */
const OF_A_SET = 'a call for several keys, which takes them sorted';

/** Whether there is room for its class. */
function isTaken(taken: Partial<Taken>): taken is Taken {
  return taken.keyClass !== undefined;
}

/**
 * How the locks on the shortest way from one class to another were taken, each while the one before was held.
 * @param goesBack whether a step of the cycle goes back already; else one of the way has to
 * @returns undefined: there is none
 */
function pathBetween(from: KeyClass, to: KeyClass, goesBack: boolean): string[] | undefined {
  const ways = [{ to: from, path: [] as string[], goesBack }];
  const reached = { true: new Set<KeyClass>(), false: new Set<KeyClass>() };
  for (const way of ways) {
    if (way.to === to && way.goesBack) return way.path;
    if (way.to === to) continue;
    for (const [next, step] of way.to.taken) {
      const isBack = way.goesBack || step.goesBack;
      const others = reached[`${isBack}`];
      if (others.has(next)) continue;
      others.add(next);
      ways.push({ to: next, path: [...way.path, step.order], goesBack: isBack });
    }
  }
  return undefined;
}

function inverted(order: string, path: readonly string[]): string {
  return (
    `Locks are taken in different orders: ${[order, ...path].join('; ')}. Calls that do so at the same time may wait for ` +
    'each other until waitMs is over. Always take them in one order, or at once with acquireAll; see docs/waiting.md.'
  );
}

function unsorted(order: string): string {
  return (
    `Locks of one kind are not taken in the order of their keys: ${order}. Another call that takes them the other way round ` +
    'and this one may wait for each other until waitMs is over. Sort the keys, or take them at once with acquireAll; see ' +
    'docs/waiting.md.'
  );
}

/** The line of the application that called the entry point. */
export function callSite(entry: EntryPoint): string {
  const at: { stack?: unknown } = {};
  Error.captureStackTrace(at, entry);
  const [, frame] = String(at.stack).split('\n');
  return frame?.trim().replace(/^at /, '') || 'A call';
}
