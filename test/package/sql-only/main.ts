import 'reflect-metadata';
import assert from 'node:assert/strict';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Locked, LockService } from 'nest-redis-lock';
import { ddl, SqlLockModule } from 'nest-redis-lock/sql';

// An application with its locks in PostgreSQL: with pg, whose types it does not have, and without ioredis.

@Injectable()
class Orders {
  constructor(private readonly locks: LockService) {}

  @Locked('order:{0}')
  async pay(id: string): Promise<string> {
    return `paid ${id} under ${this.locks.current().key}`;
  }
}

@Module({
  imports: [
    SqlLockModule.forRoot({ postgres: process.env.DATABASE_URL!, createTable: true, commandTimeoutMs: 20_000 }),
  ],
  providers: [Orders],
})
class OnPostgres {}

async function main(): Promise<void> {
  assert.match(ddl('postgres'), /^CREATE TABLE IF NOT EXISTS "resource_lock"/);
  const app = await NestFactory.createApplicationContext(OnPostgres, { logger: ['error'] });
  assert.equal(await app.get(Orders).pay('1'), 'paid 1 under order:1');
  const locks = app.get(LockService);
  const lock = await locks.acquire('key');
  assert.deepEqual(
    (await locks.list()).locks.map(({ key }) => key),
    ['key'],
  );
  assert.equal(await lock.release(), true);
  await app.close();
}

void main();
