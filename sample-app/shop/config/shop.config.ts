import { Injectable } from '@nestjs/common';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import type { SqlLockModuleOptions } from 'nest-redis-lock/sql';

/** What an instance has to be told, by environment variables. */
@Injectable()
export class ShopConfig {
  readonly warehouseUrl = required('WAREHOUSE_URL');

  /**
   * Memory has to be asked for: falling back to it would leave several instances without a common lock. In a rush everybody wants the same
   * product: who comes last waits for all others, also on a slow machine.
   */
  get locks(): RedisLockModuleOptions {
    return process.env.LOCKS === 'memory'
      ? { memory: true }
      : { redis: required('REDIS_URL'), keyPrefix: process.env.LOCK_PREFIX ?? 'shop', waitMs: 30_000 };
  }

  /**
   * Where the locks are in a table. In production a migration creates that, and not `createTable`. Waiting instances ask once a second here,
   * as the socket of a PGlite tells none of them of its turn: so they may wait for longer, also for the PGlite to start.
   */
  get lockTable(): SqlLockModuleOptions {
    return {
      postgres: required('DATABASE_URL'),
      createTable: true,
      waitMs: 30_000,
      commandTimeoutMs: 20_000,
      connectTimeoutMs: 60_000,
    };
  }
}

function required(name: string): string {
  const value = process.env[name];
  if (!value) throw new Error(`The environment variable ${name} is not set.`);
  return value;
}
