import { LockOptionsError } from '../../api/errors.js';
import { quoted } from '../../api/printable.js';
import { splitScope } from '../keys/scope.js';
import type { Lease } from '../locks/lease.js';

/** How many classes of keys are remembered: keys with names in them are unbounded, memory is not. */
const MAX_CLASSES = 1_000;
/** How many orders of two classes are remembered. */
const MAX_ORDERS = 10_000;
/** How many warnings are given: then the check ends. */
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
  /** The label of its locks, unless the option says another. */
  readonly label: string;
  /** The text of its key; undefined where it has several, or a function makes them. */
  readonly template?: string;
  /** The HTTP status of a key that is wrong: 400 where the client has made it. */
  readonly keyStatus: 400 | 500;
  /** What it does about contention, if that is no error: see `@Locked`. */
  readonly onContended?: unknown;
}

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

/** A lock that is held, or asked for. */
interface SeenLock {
  readonly key: string;
  /** Undefined: there are too many classes. */
  readonly keyClass?: KeyClass;
  /** The method that it was acquired for. */
  readonly method?: string;
}

/** An order that a call has added. */
interface Added {
  readonly from: KeyClass;
  readonly to: KeyClass;
  /** What was known of it before. */
  readonly known?: Step;
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
  readonly #noted = new WeakMap<Lease, SeenLock>();
  readonly #warned = new Set<string>();
  #orders = 0;

  /** @param warn undefined: calls are refused */
  constructor(private readonly warn: ((key: string, message: string) => void) | undefined) {}

  /** Remembers the method that locks were acquired for: the class of their keys, and a name in messages. */
  note(leases: readonly Lease[], { name, template }: AskingMethod): void {
    for (const lease of leases) {
      const { key } = lease;
      if (!this.#noted.has(lease))
        this.#noted.set(lease, { key, keyClass: this.#classOf(key, template), method: name });
    }
  }

  /**
   * Called in the line in which a call asks for locks, before that.
   * @param keys what it asks for at once, sorted: each is waited for while those before it are held
   * @param held the leases that the call holds
   * @param method the method that asks by its decorator
   * @param site where there is none, the line that asks
   * @throws LockOptionsError where calls are refused
   */
  check(keys: readonly string[], held: readonly Lease[], method: AskingMethod | undefined, site: () => string): void {
    if (held.length === 0 && keys.length === 1) return;
    let by = method?.name;
    const nameOf = () => (by ??= site()); // the stack is read once
    const outer: SeenLock[] = held.map((lease) => this.#noted.get(lease) ?? this.#seen(lease.key));
    const added: Added[] = [];
    let previous: SeenLock | undefined;
    try {
      for (const key of keys) {
        if (held.some((lease) => lease.key === key)) continue;
        const wanted = this.#seen(key, method?.template);
        for (const before of outer) {
          const under = `under ${quoted(before.key)}${before.method === undefined ? '' : ` (${before.method})`}`;
          this.#look(before, wanted, () => `${nameOf()} takes ${quoted(key)} ${under}`, added);
        }
        if (previous) {
          const first = quoted(previous.key);
          this.#look(
            previous,
            wanted,
            () => `${nameOf()} takes ${first} before ${quoted(key)} (${SORTED_KEYS})`,
            added,
          );
        }
        if (wanted.keyClass) previous = wanted;
      }
    } catch (error) {
      // A call that is refused takes none of its locks.
      for (const { from, to, known } of added.reverse()) {
        if (known) from.taken.set(to, known);
        else if (from.taken.delete(to)) this.#orders--;
      }
      throw error;
    }
  }

  /**
   * @param order says who takes the one before the other
   * @param added gets the order, if it is new
   */
  #look(before: SeenLock, wanted: SeenLock, order: () => string, added: Added[]): void {
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
      const message = from === to ? unsorted(order()) : inverted(order(), path);
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

  #seen(key: string, template?: string): SeenLock {
    return { key, keyClass: this.#classOf(key, template) };
  }

  /** Undefined when there are too many. */
  #classOf(key: string, template?: string): KeyClass | undefined {
    const name = template === undefined ? splitScope(key).rest.replace(IDS, '*') : template.replace(PLACEHOLDERS, '*');
    let found = this.#classes.get(name);
    if (!found && this.#classes.size < MAX_CLASSES) this.#classes.set(name, (found = { name, taken: new Map() }));
    return found;
  }
}

/** Says in a report why one lock is taken before another. */
const SORTED_KEYS = 'a call for several keys, which takes them sorted';

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
    'each other until waitMs is over. Always take them in one order, or at once with acquireAll; see docs/tuning.md.'
  );
}

function unsorted(order: string): string {
  return (
    `Locks of one kind are not taken in the order of their keys: ${order}. Another call that takes them the other way round ` +
    'and this one may wait for each other until waitMs is over. Sort the keys, or take them at once with acquireAll; see ' +
    'docs/tuning.md.'
  );
}

/**
 * The line of the application that called the library.
 * @param entry the function that it called, or one that this called
 * @param between how many functions are between the application and `entry`
 */
export function callSite(entry: (...args: never[]) => unknown, between = 0): string {
  const at: { stack?: unknown } = {};
  Error.captureStackTrace(at, entry);
  const frame = String(at.stack).split('\n')[1 + between];
  return frame?.trim().replace(/^at /, '') || 'A call';
}
