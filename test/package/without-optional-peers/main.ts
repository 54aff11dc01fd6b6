import 'reflect-metadata';
import assert from 'node:assert/strict';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { Locked, LockOptionsError, LockService, RedisLockModule } from 'nest-redis-lock';
import { LockModule, type PromiseBackend } from 'nest-redis-lock/backend';
import { SqlLockModule } from 'nest-redis-lock/sql';

// An application without ioredis and pg, because its locks are in memory, and without the other optional peers.

@Injectable()
class Orders {
  @Locked('order:{0}')
  async pay(id: string): Promise<string> {
    return `paid ${id}`;
  }
}

@Module({ imports: [RedisLockModule.forRoot({ memory: true })], providers: [Orders] })
class InMemory {}

@Module({ imports: [RedisLockModule.forRoot({ redis: 'redis://127.0.0.1:1' })] })
class OnRedis {}

@Module({ imports: [SqlLockModule.forRoot({ postgres: 'postgres://127.0.0.1:1/none' })] })
class OnPostgres {}

@Module({ imports: [LockModule.forRoot({ backend: () => ({ name: 'mine' }) as PromiseBackend })] })
class OnOwnStore {}

async function main(): Promise<void> {
  const app = await NestFactory.createApplicationContext(InMemory, { logger: ['error'] });
  assert.equal(await app.get(Orders).pay('1'), 'paid 1');
  const lock = await app.get(LockService).acquire('key');
  assert.equal(await lock.release(), true);
  await app.close();

  for (const [module, advice] of [
    [OnRedis, /npm install ioredis, or npm install redis\./],
    [OnPostgres, /npm install pg/],
    [OnOwnStore, /has no acquire, extend, release, inspect, list, forceRelease/],
  ] as const) {
    const starting = NestFactory.createApplicationContext(module, { logger: false, abortOnError: false });
    await assert.rejects(starting, (error: Error) => {
      assert(error instanceof LockOptionsError);
      assert.match(error.message, advice);
      return true;
    });
  }

  for (const [name, peer] of [
    ['otel', '@opentelemetry/api'],
    ['schedule', '@nestjs/schedule'],
    ['terminus', '@nestjs/terminus'],
  ]) {
    const entry: string = `nest-redis-lock/${name}`; // the compiler must not look for its types
    await assert.rejects(import(entry), (error: Error & { code?: string }) => {
      assert.match(error.code!, /MODULE_NOT_FOUND$/);
      assert(error.message.includes(`'${peer}'`), error.message);
      return true;
    });
  }
}

void main();
