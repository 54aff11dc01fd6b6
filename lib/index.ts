export { formatDiagnosis, type Finding, type LockDiagnosis, type LockPing, type NodeReport } from './api/diagnosis.js';
export {
  LockContendedError,
  LockError,
  LockKeyError,
  LockLostError,
  LockOptionsError,
  LockSelfDeadlockError,
  LockUnavailableError,
  NodeError,
  type Contention,
  type LockErrorCode,
  type LockLostReason,
  type LockOutcome,
} from './api/errors.js';
export type { LockEvent, LockGrant } from './api/events.js';
export type { Leader, LeaderOptions, LeaderState, Leadership, LeadershipEnd } from './api/leader.js';
export type {
  HolderInfo,
  Lock,
  LockInfo,
  LockList,
  LockMode,
  LockSet,
  LockStats,
  Permit,
  WaitingProcess,
} from './api/lock.js';
export type { DetachOptions, LockParcel, ParcelOptions } from './api/parcel.js';
export type {
  AcquireOptions,
  HoldOptions,
  LabelOptions,
  LeaseOptions,
  LimitOptions,
  ListOptions,
  LockPolicies,
  LockPolicy,
  LockServiceOptions,
  LossOptions,
  ModeOptions,
  ScopeOptions,
  PermitCount,
  PermitOptions,
  PoliciesByName,
  PolicyName,
  PolicyPermitCount,
  ReleaseOptions,
  TryAcquireOptions,
  TryPermitOptions,
  WithLockOptions,
  WithPermitsOptions,
  WithPolicy,
} from './api/options.js';
export type {
  RedisLockModuleOptions,
  RedisLockOptionsFactory,
  RedisLockSettings,
} from './compose/redis-lock-options.js';
export type { ReplicaOptions } from './stores/redis/options.js';
export type { LockHolder } from './api/holder.js';
export type {
  AcquireTrace,
  HoldTrace,
  LockEventMessage,
  LockObserver,
  LockTelemetry,
  Observation,
  ObservedExtension,
  ObservedLocks,
  ObservedStats,
} from './api/telemetry.js';
export type { OddCounter } from './stores/redis/doctor/counters.js';
export type { FindingCode, NodeDiagnosis, ServerName } from './stores/redis/doctor/diagnosis.js';
export type { FenceStore } from './fencing/fence-store.js';
export {
  assertFenced,
  fencedUpdate,
  fencedUpsert,
  type FencedRow,
  type FencedStatement,
  type FencedWrite,
} from './fencing/fenced-statement.js';
export {
  FENCING_TOKEN_HEADER,
  fencingHeaders,
  readFencingHeader,
  type FencingClaim,
} from './fencing/fencing-header.js';
export { RedisFence, type RedisFenceOptions } from './fencing/redis-fence.js';
export { SqlFence, type SqlFenceOptions, type SqlQuery } from './fencing/sql-fence.js';
export { StaleTokenError, type StaleTokenDetails } from './fencing/stale-token.error.js';
export type { IoredisClient, RedisSource } from './stores/redis/client/source.js';
export { LockService, type Work, type WorkOfSet } from './core/service/lock.service.js';
export { Fenced, FencingToken, type FencedOptions, type FencingTokenOptions } from './nest/fencing/fenced.decorator.js';
export { FENCE_STORE, FencingTokenGuard } from './nest/fencing/fencing-token.guard.js';
export type { LockErrorAnswer } from './nest/filters/lock-error-answer.js';
export {
  LockExceptionFilter,
  LockGraphQLExceptionFilter,
  LockHttpExceptionFilter,
  LockRpcExceptionFilter,
  LockWsExceptionFilter,
} from './nest/filters/lock-exception.filters.js';
export { Limited } from './nest/limited/limited.decorator.js';
export type { LimitedKey, LimitedOptions } from './nest/limited/limited.types.js';
export { fromContext, Locked } from './nest/locked/locked.decorator.js';
export type {
  LockableMethod,
  LockedDecorator,
  LockedKey,
  LockedOptions,
  WithoutLock,
} from './nest/locked/locked.types.js';
export { ContextKey } from './nest/locked/locked-method.js';
export { LockedInterceptor, lockedInterceptorOf } from './nest/locked/locked.interceptor.js';
export { LeaderOnly, WhileLeader, type LeaderMethodOptions } from './nest/leader/leader.decorators.js';
export { NotLocked } from './nest/injection/not-locked.decorator.js';
export { lockKey, type RequestRoot } from './core/keys/key.js';
export { RedisLockModule } from './nest/module/redis-lock.module.js';
export type { LockModuleExtras as RedisLockModuleExtras } from './nest/module/lock.module-definition.js';
export { getLockServiceToken, InjectLockService } from './nest/injection/tokens.js';
