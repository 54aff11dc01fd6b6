import type { DynamicModule } from '@nestjs/common';
import { RedisLockModule } from 'nest-redis-lock';
import { SqlLockModule } from 'nest-redis-lock/sql';
import type { LockOptions } from '../../support/lock-module.js';
import { onPGlite } from '../pglite.js';

/** Replaces `test/support/lock-module.ts`: the locks are in a table in PGlite instead of the memory of the process. */
export async function lockModule({ memory, redis, redlock, ...settings }: LockOptions): Promise<DynamicModule> {
  if (memory) return SqlLockModule.forRoot({ ...settings, ...(await onPGlite()) });
  return RedisLockModule.forRoot({ ...settings, redis, redlock } as LockOptions);
}
