import type { DynamicModule } from '@nestjs/common';
import { RedisLockModule } from 'nest-redis-lock';

export type LockOptions = Parameters<typeof RedisLockModule.forRoot>[0];

/** The lock module of an application. The project `postgres` replaces it by a module with locks in a table. */
export async function lockModule(options: LockOptions): Promise<DynamicModule> {
  return RedisLockModule.forRoot(options);
}
