export type {
  AcquireOutcome,
  AcquireRequest,
  Bound,
  Bounds,
  CallsBehind,
  ExtendOutcome,
  ExtendRequest,
  Grant,
  GuardStatement,
  HandOver,
  Hold,
  Holder,
  Holding,
  Listed,
  ListRequest,
  LockBackend,
  Place,
  Releasing,
  ReleaseOutcome,
  Taken,
  Transfer,
  TransferOutcome,
  Waiting,
  WaitListener,
  WaitQueue,
} from '../core/backend/lock-backend.js';
export {
  fromPromises,
  type AcquireAnswer,
  type ExtendAnswer,
  type PromiseBackend,
  type TransferAnswer,
} from '../core/backend/from-promises.js';
export { matcherOf } from '../core/backend/matcher.js';
export type { BackendPing, BackendReport } from '../core/backend/report.js';
export { describeBackend, type BackendTestRunner, type BackendUnderTest } from './describe-backend.js';
export type { JournalEntry, Refusal } from './bench-engine.js';
export { LockBench, type LockBenchOptions, type LockElsewhere } from './lock-bench.js';
export { lockMatchers, type LockedWith, type LockMatchers } from './lock-matchers.js';
export { getLockBenchToken, LockTestingModule } from './lock-testing.module.js';
export { withMemoryLocks } from './with-memory-locks.js';
