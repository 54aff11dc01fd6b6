import type { DynamicModule } from '@nestjs/common';
import { RedisLockModule } from 'nest-redis-lock';
import { SqlLockModule } from 'nest-redis-lock/sql';
import type { LockOptions } from '../../support/lock-module.js';
import { PostgresServer } from '../../support/postgres-server.js';

let server: Promise<PostgresServer> | undefined;
let tables = 0;

/**
 * Replaces `test/support/lock-module.ts`: the locks are in a new table instead of the memory of the process. The server
 * ends with this worker.
 */
export async function lockModule({ memory, redis, redlock, ...settings }: LockOptions): Promise<DynamicModule> {
  if (!memory) return RedisLockModule.forRoot({ ...settings, redis, redlock } as LockOptions);
  server ??= PostgresServer.start({ fsync: 'on' }); // without a warning at the start
  const table = { postgres: (await server).url, table: `locks_${++tables}`, createTable: true };
  return SqlLockModule.forRoot({ ...settings, ...table, commandTimeoutMs: 20_000 });
}
