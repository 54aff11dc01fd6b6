export type { JournalEntry, Refusal } from './bench-engine.js';
export { LockBench, type LockBenchOptions, type LockElsewhere } from './lock-bench.js';
export { lockMatchers, type LockedWith, type LockMatchers } from './lock-matchers.js';
export { getLockBenchToken, LockTestingModule } from './lock-testing.module.js';
export { withoutLocks } from './without-locks.js';
