import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { splitScope } from '../keys/scope.js';
import type { Lease } from '../locks/lease.js';

/** Maximum number of classes of keys that it remembers: keys with names in them are unbounded, memory is not. */
const MAX_CLASSES = 1_000;
/** Maximum number of orders of two classes that it remembers. */
const MAX_ORDERS = 10_000;
/** The check ends after this number of warnings. */
const MAX_WARNINGS = 100;

/** Ids in a plain key: UUIDs, long hexadecimal numbers, digits. */
const IDS = /[\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12}|[\da-f]{16,}|\d+/gi;
const PLACEHOLDERS = /\{[^{}]*\}/g;

/** The method whose `@Locked` or `@Limited` asks for a lock. */
export interface AskingMethod {
  /** For messages: `@Locked`. */
  readonly decorator: string;
  /** `Class.method`. */
  readonly name: string;
  /** The label of its locks, unless the option `label` names another one. */
  readonly label: string;
  /** The template of its key; undefined if it has several keys, or a function makes them. */
  readonly template?: string;
  /** The HTTP status of an invalid key: 400 if the key comes from the client. */
  readonly keyStatus: 400 | 500;
  /** What it does about contention: see `@Locked`. */
  readonly onContended?: unknown;
}

/** All keys that differ only in their ids. */
interface KeyClass {
  readonly name: string;
  /** The classes of the locks that calls took while they held a lock of this class, each with the first such step. */
  readonly taken: Map<KeyClass, Step>;
}

/** A call took a lock while it held another one. */
interface Step {
  /** Which method took which lock, for messages. */
  readonly order: string;
  /** Whether its key is smaller than the key of the other lock. */
  readonly goesBack: boolean;
}

/** A lock that a call holds, or asks for. */
interface SeenLock {
  readonly key: string;
  /** Undefined if there are too many classes. */
  readonly keyClass?: KeyClass;
  /** The method that has acquired it. */
  readonly method?: string;
}

/** An order of two classes that a call has added. */
interface Added {
  readonly from: KeyClass;
  readonly to: KeyClass;
  /** The step that it replaces. */
  readonly known?: Step;
}

/**
 * Finds locks that calls take in different orders, so that two calls could wait for each other. It has a graph of classes of keys. An
 * edge leads from a lock that a call holds to the lock that it asks for. A cycle is a possible deadlock, before any deadlock
 * happens. Lockdep does the same for Linux: docs.kernel.org/locking/lockdep-design.html.
 *
 * A call for several keys takes them sorted, so it adds an edge from each key to the next. Calls that keep the order of keys never wait for each
 * other, even if the classes form a cycle. So a cycle counts only if one of its steps goes back in that order.
 */
export class LockOrder {
  readonly #classes = new Map<string, KeyClass>();
  readonly #noted = new WeakMap<Lease, SeenLock>();
  readonly #warned = new Set<string>();
  #orders = 0;

  /** @param warn undefined: it refuses calls instead */
  constructor(private readonly warn: ((key: string, message: string) => void) | undefined) {}

  /** Remembers which method has acquired locks: for the class of their keys, and for messages. */
  note(leases: readonly Lease[], { name, template }: AskingMethod): void {
    for (const lease of leases) {
      const { key } = lease;
      if (!this.#noted.has(lease))
        this.#noted.set(lease, { key, keyClass: this.#classOf(key, template), method: name });
    }
  }

  /**
   * Called synchronously, before a call asks for locks.
   * @param keys the keys that it asks for, sorted: it waits for each of them while it holds the earlier ones
   * @param held the leases that the call holds
   * @param method the method that asks by its decorator
   * @param site returns the line of code that asks, if there is no method
   * @throws LockOptionsError instead of a warning, if there is no `warn`
   */
  check(keys: readonly string[], held: readonly Lease[], method: AskingMethod | undefined, site: () => string): void {
    if (held.length === 0 && keys.length === 1) return;
    let by = method?.name;
    const nameOf = () => (by ??= site()); // reads the stack only once
    const outer: SeenLock[] = held.map((lease) => this.#noted.get(lease) ?? this.#seenLock(lease.key));
    const added: Added[] = [];
    let previous: SeenLock | undefined;
    try {
      for (const key of keys) {
        if (held.some((lease) => lease.key === key)) continue;
        const wanted = this.#seenLock(key, method?.template);
        for (const before of outer) {
          const under = `under ${quoted(before.key)}${before.method === undefined ? '' : ` (${before.method})`}`;
          this.#addOrder(before, wanted, () => `${nameOf()} takes ${quoted(key)} ${under}`, added);
        }
        if (previous) {
          const first = quoted(previous.key);
          this.#addOrder(
            previous,
            wanted,
            () => `${nameOf()} takes ${first} before ${quoted(key)} (${SORTED_KEYS})`,
            added,
          );
        }
        if (wanted.keyClass) previous = wanted;
      }
    } catch (error) {
      // A refused call takes no locks, so the orders that it has added do not exist.
      for (const { from, to, known } of added.reverse()) {
        if (known) from.taken.set(to, known);
        else if (from.taken.delete(to)) this.#orders--;
      }
      throw error;
    }
  }

  /**
   * Adds the order of two locks, or warns if it closes a cycle.
   * @param order returns which method takes which lock first
   * @param added gets the order, if it is new
   */
  #addOrder(before: SeenLock, wanted: SeenLock, order: () => string, added: Added[]): void {
    const { keyClass: from } = before;
    const { keyClass: to } = wanted;
    if (this.#warned.size >= MAX_WARNINGS || !from || !to) return;
    const goesBack = before.key > wanted.key;
    if (from === to && !goesBack) return;
    const known = from.taken.get(to);
    if (known && (known.goesBack || !goesBack)) return;
    const pair = `${from.name}\n${to.name}`;
    if (this.#warned.has(pair)) return;
    const path = pathBetween(to, from, goesBack);
    if (path) {
      const message = from === to ? unsortedMessage(order()) : inversionMessage(order(), path);
      if (!this.warn) throw new LockOptionsError(message);
      this.#warned.add(pair);
      this.warn(wanted.key, message);
      return;
    }
    if (!known && this.#orders >= MAX_ORDERS) return;
    from.taken.set(to, { order: order(), goesBack });
    if (!known) this.#orders++;
    added.push({ from, to, known });
  }

  #seenLock(key: string, template?: string): SeenLock {
    return { key, keyClass: this.#classOf(key, template) };
  }

  /** @returns undefined if there are too many classes */
  #classOf(key: string, template?: string): KeyClass | undefined {
    const name = template === undefined ? splitScope(key).rest.replace(IDS, '*') : template.replace(PLACEHOLDERS, '*');
    let found = this.#classes.get(name);
    if (!found && this.#classes.size < MAX_CLASSES) this.#classes.set(name, (found = { name, taken: new Map() }));
    return found;
  }
}

/** Why one key of a call is taken before another, for messages. */
const SORTED_KEYS = 'a call for several keys, which takes them sorted';

/**
 * Finds the shortest path from one class to another.
 * @param goesBack whether the new step of the cycle goes back; if not, a step of the path has to
 * @returns the orders of its steps, for messages; undefined if there is no path
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

function inversionMessage(order: string, path: readonly string[]): string {
  return (
    `Locks are taken in different orders: ${[order, ...path].join('; ')}. Calls that do so at the same time may wait for ` +
    'each other until waitMs has passed. Always take them in the same order, or at once with acquireAll; see docs/tuning.md.'
  );
}

function unsortedMessage(order: string): string {
  return (
    `Locks of one kind are not taken in the order of their keys: ${order}. This call and one that takes them in the opposite ` +
    'order may wait for each other until waitMs has passed. Sort the keys, or take them at once with acquireAll; see ' +
    'docs/tuning.md.'
  );
}

/**
 * The line of the application that called the library.
 * @param entry a function of the library
 * @param between how many functions of the library are between the application and `entry`
 */
export function callSite(entry: (...args: never[]) => unknown, between = 0): string {
  const at: { stack?: unknown } = {};
  Error.captureStackTrace(at, entry);
  const frame = String(at.stack).split('\n')[1 + between];
  return frame?.trim().replace(/^at /, '') || 'A call';
}
