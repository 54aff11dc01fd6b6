import { LockOptionsError } from '../api/errors.js';
import { quoted } from '../api/printable.js';
import { findByKey } from '../core/keys/scope.js';
import { listed } from '../core/locks/lock-set-handle.js';
import type { JournalEntry } from './bench-engine.js';
import { LockBench } from './lock-bench.js';

/** The options that `toHaveLocked` compares; it ignores options that are left out. */
export type LockedWith = Partial<Omit<Extract<JournalEntry, { event: 'acquired' }>, 'event' | 'key'>>;

/** The types of the matchers. Extend the matcher type of your test runner with them. */
export interface LockMatchers<Result = unknown> {
  /** Passes if the code under test or another process holds the lock now: `expect(bench).toHoldLock('order:17')`. */
  toHoldLock(key: string): Result;
  /** Passes if the journal shows that a call acquired the lock: `expect(bench).toHaveLocked('order:17', { ttlMs: 5_000 })`. */
  toHaveLocked(key: string, options?: LockedWith): Result;
}

/** The outcome of a matcher, in the form that Jest and Vitest expect. */
interface Verdict {
  pass: boolean;
  message: () => string;
}

/** Matchers for `expect.extend(lockMatchers)` of Jest and Vitest. */
export const lockMatchers = {
  toHoldLock(bench: LockBench, key: string): Verdict {
    const { heldKeys } = checked(bench, 'toHoldLock');
    const pass = findByKey(key, (fits) => heldKeys.find(fits)) !== undefined;
    return verdict(pass, `lock ${quoted(key)}`, 'be held', `held: ${listed(heldKeys) || 'none'}`);
  },

  toHaveLocked(bench: LockBench, key: string, options: LockedWith = {}): Verdict {
    const acquired = checked(bench, 'toHaveLocked').journal.filter(({ event }) => event === 'acquired');
    const wanted = Object.entries(options);
    const isWanted = (entry: JournalEntry) =>
      wanted.every(([name, value]) => (entry as unknown as Record<string, unknown>)[name] === value);
    const pass = findByKey(key, (fits) => acquired.find((each) => fits(each.key) && isWanted(each))) !== undefined;
    const entries = acquired.map((entry) => `\n  ${JSON.stringify(entry)}`).join('') || 'nothing';
    return verdict(pass, JSON.stringify({ key, ...options }), 'have been locked', `acquired: ${entries}`);
  },
};

function verdict(pass: boolean, subject: string, is: string, got: string): Verdict {
  return { pass, message: () => `expected ${subject} ${pass ? 'not to' : 'to'} ${is}; ${got}` };
}

/** @throws LockOptionsError if the subject is not a `LockBench`, even for a negated matcher */
function checked(bench: unknown, matcher: string): LockBench {
  if (bench instanceof LockBench) return bench;
  throw new LockOptionsError(`${matcher} needs a LockBench: write expect(bench).${matcher}(…).`);
}
