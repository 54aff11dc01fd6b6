import 'reflect-metadata';
import assert from 'node:assert/strict';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  Locked,
  LockOptionsError,
  LockService,
  RedisFence,
  RedisLockModule,
  type RedisLockModuleOptions,
} from 'nest-redis-lock';
import { ddl, SqlLockModule } from 'nest-redis-lock/sql';
import { createClient } from 'redis';

// An application that uses node-redis, and pg, whose types it does not have, and has no ioredis.

const client = createClient({ url: process.env.REDIS_URL! });

@Injectable()
class Orders {
  constructor(private readonly locks: LockService) {}

  @Locked('order:{0}')
  async pay(id: string): Promise<string> {
    return `paid ${id} under ${this.locks.current().key}`;
  }
}

// The types of ioredis are unknown here, which must not affect the other types.
// @ts-expect-error it is no option of node-redis
export const misspelt: RedisLockModuleOptions = { redis: { urll: 'redis://a' } };
// @ts-expect-error it is a promise
export const connecting: RedisLockModuleOptions = { redis: client.connect() };

@Module({ imports: [RedisLockModule.forRoot({ redis: process.env.REDIS_URL! })], providers: [Orders] })
class ByUrl {}

@Module({ imports: [RedisLockModule.forRoot({ redis: { url: process.env.REDIS_URL! } })], providers: [Orders] })
class ByOptions {}

@Module({ imports: [RedisLockModule.forRoot({ redis: client })], providers: [Orders] })
class ByClient {}

@Module({
  imports: [
    SqlLockModule.forRoot({ postgres: process.env.DATABASE_URL!, createTable: true, commandTimeoutMs: 20_000 }),
  ],
  providers: [Orders],
})
class OnPostgres {}

export const ofRespTwo: RedisLockModuleOptions = { redis: { url: 'redis://a', RESP: 2 } };

// For example in JavaScript, where no compiler refuses it.
@Module({ imports: [RedisLockModule.forRoot({ redis: { host: 'localhost', port: 6379 } as never })] })
class InTheFormOfIoredis {}

async function main(): Promise<void> {
  assert.match(ddl('postgres'), /^CREATE TABLE IF NOT EXISTS "resource_lock"/);
  for (const module of [ByUrl, ByOptions, ByClient, OnPostgres]) {
    const app = await NestFactory.createApplicationContext(module, { logger: ['error'] });
    assert.equal(await app.get(Orders).pay('1'), 'paid 1 under order:1');
    const locks = app.get(LockService);
    const lock = await locks.acquire('key');
    assert.deepEqual(
      (await locks.list()).locks.map(({ key }) => key),
      ['key'],
    );
    const next = locks.acquire('key'); // it listens for its turn
    assert.equal(await lock.release(), true);
    assert.equal(await (await next).release(), true);
    await app.close();
  }
  const starting = NestFactory.createApplicationContext(InTheFormOfIoredis, { logger: false, abortOnError: false });
  await assert.rejects(starting, (error: Error) => {
    assert(error instanceof LockOptionsError);
    assert.match(error.message, /With node-redis give \{ socket: \{ host, port \} \}/);
    return true;
  });
  assert.equal(client.isOpen, true); // it belongs to the application
  await new RedisFence(client).write('key', 1, 'value');
  client.destroy();
}

void main();
