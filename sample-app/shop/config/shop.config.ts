import { Injectable } from '@nestjs/common';
import type { RedisLockModuleOptions } from 'nest-redis-lock';
import type { SqlLockModuleOptions } from 'nest-redis-lock/sql';

/** The configuration of an instance, from environment variables. */
@Injectable()
export class ShopConfig {
  readonly warehouseUrl = required('WAREHOUSE_URL');

  /**
   * Memory is used only on request: as a fallback, it would leave several instances without a common lock. `waitMs` is long because in a
   * rush everybody wants the same product, and the last buyer waits for all others, even on a slow machine.
   */
  get locks(): RedisLockModuleOptions {
    return process.env.LOCKS === 'memory'
      ? { memory: true }
      : { redis: required('REDIS_URL'), keyPrefix: process.env.LOCK_PREFIX ?? 'shop', waitMs: 30_000 };
  }

  /**
   * The options for locks in a table. In production a migration creates the table, not `createTable`. The socket of a PGlite notifies no
   * instance of its turn, so waiting instances poll once a second. Hence the long time limits; they also cover the start of the PGlite.
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
