/**
 * What chaos uses of the library, and its mutants change. The path of each module stands here alone: this module is compiled
 * beside whichever copy of `lib/` is meant, the built one or one of a test's own.
 */
export { RedisConnection } from '../../lib/backends/redis-connection.js';
export { RedisNode } from '../../lib/backends/redis-node.js';
export { Inbox } from '../../lib/backends/inbox.js';
export { RedlockBackend } from '../../lib/backends/redlock.backend.js';
export { SingleNodeBackend } from '../../lib/backends/single-node.backend.js';
export { Clock } from '../../lib/lease/clock.js';
export { Lease, validityMs } from '../../lib/lease/lease.js';
export { resolveOptions } from '../../lib/resolve-options.js';
export { ACQUIRE, VOTE } from '../../lib/scripts/acquire.script.js';
export { CONTEND, VOTE_OR_QUEUE } from '../../lib/scripts/contend.script.js';
export { EXTEND, RESTORE } from '../../lib/scripts/extend.script.js';
export { FORCE_RELEASE } from '../../lib/scripts/force-release.script.js';
export { GRANT_TTL_MS } from '../../lib/scripts/hand-off.js';
export { RELEASE } from '../../lib/scripts/release.script.js';
export { WITHDRAW } from '../../lib/scripts/withdraw.script.js';
export { LockQueue } from '../../lib/service/lock-queue.js';
export { LockService } from '../../lib/service/lock.service.js';
export { RefusalGate } from '../../lib/service/refusal-gate.js';

export type { LockBackend } from '../../lib/backends/lock-backend.js';
export type { LeaseState } from '../../lib/lease/lease.js';
export type { LockHandle } from '../../lib/lease/lock-handle.js';
export type { RedisLockModuleOptions, RedisLockSettings } from '../../lib/options.js';
export type { Script } from '../../lib/scripts/script.js';
export type { Lock } from '../../lib/lock.js';
