import { LockOptionsError } from '../../api/errors.js';
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
  /** The classes of the locks that were taken under one of this class, each with how that was first seen. */
  readonly taken: Map<KeyClass, string>;
}

interface Noted {
  readonly keyClass: KeyClass;
  readonly method: string;
}

/**
 * Finds locks that are taken in different orders, so that two calls could wait for each other: a graph of classes of keys, with
 * an edge from the class of a lock that a call holds to the class of the lock that it asks for. A cycle is a deadlock that may
 * happen; none has to. The idea is that of lockdep, the lock validator of Linux: docs.kernel.org/locking/lockdep-design.html.
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
   * @param keys what it asks for at once: these have no order among themselves
   * @param held the leases that the call holds
   * @param method the method whose `@Locked` asks; where there is none, the line that called `entry` is named
   * @throws LockOptionsError where calls are refused
   */
  check(keys: readonly string[], held: readonly Lease[], method: LockedMethod | undefined, entry: EntryPoint): void {
    const seen: (() => void)[] = [];
    let by = method?.name;
    const nameOf = () => (by ??= callSite(entry)); // the stack is read once
    for (const key of keys) {
      if (!held.some((lease) => lease.key === key)) this.#look(key, held, method?.template, nameOf, seen);
    }
    // Not before: a call that is refused takes none of them.
    for (const add of seen) add();
  }

  /** @param seen gets what adds the orders that are new */
  #look(
    key: string,
    held: readonly Lease[],
    template: string | undefined,
    nameOf: () => string,
    seen: (() => void)[],
  ): void {
    if (this.#warned.size >= MAX_WARNINGS) return;
    const wanted = this.#classOf(key, template);
    if (!wanted) return;
    for (const lease of held) {
      const noted = this.#noted.get(lease);
      const before = noted?.keyClass ?? this.#classOf(lease.key);
      if (!before || before.taken.has(wanted) || (before === wanted && lease.key <= key)) continue;
      const pair = `${before.name}\n${wanted.name}`;
      if (this.#warned.has(pair)) continue;
      const path = pathBetween(wanted, before);
      if (!path && this.#orders + seen.length >= MAX_ORDERS) continue;
      const order = `${nameOf()} takes "${key}" under "${lease.key}"${noted ? ` (${noted.method})` : ''}`;
      if (path) this.#report(key, pair, before === wanted ? unsorted(order) : inverted(order, path));
      else seen.push(() => this.#add(before, wanted, order));
    }
  }

  #add(before: KeyClass, wanted: KeyClass, order: string): void {
    if (before.taken.has(wanted)) return; // by another key of the same call
    before.taken.set(wanted, order);
    this.#orders++;
  }

  #report(key: string, pair: string, message: string): void {
    if (!this.warn) throw new LockOptionsError(message);
    this.#warned.add(pair);
    this.warn(key, message);
  }

  /** Undefined when there are too many. */
  #classOf(key: string, template?: string): KeyClass | undefined {
    const name = template === undefined ? key.replace(IDS, '*') : template.replace(PLACEHOLDERS, '*');
    let found = this.#classes.get(name);
    if (!found && this.#classes.size < MAX_CLASSES) this.#classes.set(name, (found = { name, taken: new Map() }));
    return found;
  }
}

/** How the locks on the shortest way from one class to another were taken, each under the one before; undefined: there is none. */
function pathBetween(from: KeyClass, to: KeyClass): string[] | undefined {
  const reached = new Map<KeyClass, string[]>([[from, []]]);
  for (const [keyClass, path] of reached) {
    if (keyClass === to) return path;
    for (const [next, order] of keyClass.taken) if (!reached.has(next)) reached.set(next, [...path, order]);
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
function callSite(entry: EntryPoint): string {
  const at: { stack?: unknown } = {};
  Error.captureStackTrace(at, entry);
  const [, frame] = String(at.stack).split('\n');
  return frame?.trim().replace(/^at /, '') || 'A call';
}
