import { Injectable } from '@nestjs/common';
import type { RedisLockModuleOptions } from 'nest-redis-lock';

/** What an instance has to be told, by environment variables. */
@Injectable()
export class ShopConfig {
  readonly warehouseUrl = required('WAREHOUSE_URL');

  /** Memory has to be asked for: falling back to it would leave several instances without a common lock. */
  readonly locks: RedisLockModuleOptions =
    process.env.LOCKS === 'memory'
      ? { memory: true }
      : { redis: required('REDIS_URL'), keyPrefix: process.env.LOCK_PREFIX ?? 'shop' };
}

function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`The environment variable ${name} is not set.`);
  return value;
}
