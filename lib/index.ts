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
  TryAcquireOptions,
  WithLockOptions,
} from './options.js';
export type { LockHolder } from './owner.js';
export { LockService, type Work } from './service/lock.service.js';
export type { RequestRoot } from './nest/key-template.js';
export {
  fromContext,
  Locked,
  type LockableMethod,
  type LockedDecorator,
  type LockedOptions,
} from './nest/locked.decorator.js';
export { ContextKey } from './nest/locked-plan.js';
export { LockedInterceptor, lockedInterceptorOf } from './nest/locked.interceptor.js';
export { lockKey } from './nest/lock-key.js';
export { RedisLockModule } from './nest/redis-lock.module.js';
export type { RedisLockModuleExtras } from './nest/redis-lock.module-definition.js';
export { getLockServiceToken, InjectLockService } from './nest/tokens.js';
