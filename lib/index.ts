export type { Finding, FindingCode, LockDiagnosis, NodeDiagnosis } from './doctor/diagnosis.js';
export { formatDiagnosis } from './doctor/format-diagnosis.js';
export {
  LockContendedError,
  LockError,
  LockKeyError,
  LockLostError,
  LockOptionsError,
  LockSelfDeadlockError,
  LockUnavailableError,
  NodeError,
  type LockErrorCode,
  type LockLostReason,
  type LockOutcome,
} from './errors.js';
export type { LockEvent } from './events.js';
export type { Lock, LockInfo } from './lock.js';
export type {
  AcquireOptions,
  LeaseOptions,
  LossOptions,
  RedisClient,
  RedisLockModuleOptions,
  RedisLockOptionsFactory,
  RedisLockSettings,
  RedisSource,
  ReplicaOptions,
  TryAcquireOptions,
  WithLockOptions,
} from './options.js';
export type { LockHolder } from './owner.js';
export { assertFenced, type FencedWrite } from './resource/assert-fenced.js';
export type { FenceStore } from './resource/fence-store.js';
export { fencedUpdate, fencedUpsert, type FencedRow, type FencedStatement } from './resource/fenced-statement.js';
export {
  FENCING_TOKEN_HEADER,
  fencingHeaders,
  readFencingHeader,
  type FencingClaim,
} from './resource/fencing-header.js';
export { RedisFence, type RedisFenceOptions } from './resource/redis-fence.js';
export { SqlFence, type SqlFenceOptions, type SqlQuery } from './resource/sql-fence.js';
export { StaleTokenError, type StaleTokenDetails } from './resource/stale-token.error.js';
export { LockService, type Work } from './service/lock.service.js';
export { Fenced, FencingToken, type FencedOptions, type FencingTokenOptions } from './nest/fenced.decorator.js';
export { FENCE_STORE, FencingTokenGuard } from './nest/fencing-token.guard.js';
export type { LockErrorAnswer } from './nest/filters/lock-error-answer.js';
export { LockExceptionFilter } from './nest/filters/lock-exception.filter.js';
export { LockGraphQLExceptionFilter } from './nest/filters/lock-graphql-exception.filter.js';
export { LockHttpExceptionFilter } from './nest/filters/lock-http-exception.filter.js';
export { LockRpcExceptionFilter } from './nest/filters/lock-rpc-exception.filter.js';
export { LockWsExceptionFilter } from './nest/filters/lock-ws-exception.filter.js';
export type { RequestRoot } from './nest/key-template.js';
export { fromContext, Locked } from './nest/locked.decorator.js';
export type { LockableMethod, LockedDecorator, LockedKey, LockedOptions } from './nest/locked.types.js';
export { ContextKey } from './nest/locked-plan.js';
export { LockedInterceptor, lockedInterceptorOf } from './nest/locked.interceptor.js';
export { lockKey } from './nest/lock-key.js';
export { RedisLockModule } from './nest/redis-lock.module.js';
export type { RedisLockModuleExtras } from './nest/redis-lock.module-definition.js';
export { getLockServiceToken, InjectLockService } from './nest/tokens.js';
