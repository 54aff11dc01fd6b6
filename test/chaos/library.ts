/**
 * The parts of the library that chaos uses and its mutants change. Only this module has their paths: it is compiled
 * next to the copy of `lib/` in question, the built one or a copy of a test.
 */
export { Cluster } from 'ioredis';
export { RedisConnection } from '../../lib/stores/redis/client/redis-connection.js';
export { RedisNode } from '../../lib/stores/redis/node/redis-node.js';
export { PlainInbox } from '../../lib/stores/redis/node/inbox.js';
export { RedlockBackend } from '../../lib/stores/redis/redlock/redlock.backend.js';
export { ServerBackend } from '../../lib/stores/node/server.backend.js';
export { Clock } from '../../lib/core/time/clock.js';
export { Demands } from '../../lib/core/locks/demands.js';
export { Lease } from '../../lib/core/locks/lease.js';
export { Leases } from '../../lib/core/locks/leases.js';
export {
  ACQUIRE,
  ACQUIRE_TOGETHER,
  DOWNGRADE,
  EXTEND,
  EXTEND_TOGETHER,
  FORCE_RELEASE,
  RELEASE,
  RESTORE,
  TRANSFER,
  TURN,
  VOTE,
  VOTE_OR_QUEUE,
  WITHDRAW,
} from '../../lib/stores/redis/scripts/lua.js';
export { RELEASE_AND_TURN, RELEASE_AND_ACQUIRE_TOGETHER } from '../../lib/stores/redis/node/lock-scripts.js';
export { Line } from '../../lib/core/locks/line.js';
export { Term } from '../../lib/core/service/term.js';
export { openLocks } from '../../lib/compose/open-locks.js';
export { composeLocks } from '../../lib/compose/composition.js';
export { SQL } from '../../lib/compose/sql-lock-options.js';
export { StatementRunner } from '../../lib/stores/sql/statement-runner.js';
export { MysqlNode } from '../../lib/stores/sql/mysql/mysql-node.js';
export { PostgresNode } from '../../lib/stores/sql/postgres/postgres-node.js';
export { guardStatement } from '../../lib/sql/guard.js';
export { LockService } from '../../lib/core/service/lock.service.js';
export { LockSetHandle } from '../../lib/core/locks/lock-set-handle.js';
export { RefusalGate } from '../../lib/core/locks/refusal-gate.js';

export type { Lock, LockParcel, RedisLockModuleOptions, RedisLockSettings } from '../../lib/index.js';
export type { GuardStatement, SqlLockModuleOptions } from '../../lib/sql/index.js';
export type { Hold, LockBackend, Place } from '../../lib/core/backend/lock-backend.js';
export type { LockHandle } from '../../lib/core/locks/lock-handle.js';
export type { LeaseState } from '../../lib/core/locks/lease.js';
export type { PostgresStatement } from '../../lib/stores/sql/postgres/statements.js';
export type { Statement } from '../../lib/stores/sql/statement.js';
export type { Script } from '../../lib/stores/redis/scripts/script.js';
