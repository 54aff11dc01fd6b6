import type { DynamicModule } from '@nestjs/common';
import { RedisLockModule } from 'nest-redis-lock';
import { SqlLockModule } from 'nest-redis-lock/sql';
import type { LockOptions } from '../../support/lock-module.js';
import { onPGlite } from '../pglite.js';

/** In place of `test/support/lock-module.ts`: what would be in the memory of the process is in a table of its own in PGlite. */
export async function lockModule({ memory, redis, redlock, ...settings }: LockOptions): Promise<DynamicModule> {
  if (memory) return SqlLockModule.forRoot({ ...settings, ...(await onPGlite()) });
  return RedisLockModule.forRoot({ ...settings, redis, redlock } as LockOptions);
}
